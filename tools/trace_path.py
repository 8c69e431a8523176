"""How much of the package one click episode and one update pass through.

    python tools/trace_path.py            # the sums
    python tools/trace_path.py --calls    # and every call from one room into another

What is counted, between the plan of an episode and the weights after an update: files and functions
of the package that were entered, and room changes: pairs of functions in different rooms of which
one called the other (directly, or through code that is not the package's, such as HUD's loop).
Building the policy, the engine and the runtime is not counted. The smoke recipe's click stage is
what is played, untrained: the numbers are about reading, not about learning.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cua_lab.recipes import load_recipe
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.stitching.sample import Sample, samples_of
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.episode_images import episode_images
from cua_lab.play.worker import Worker
from cua_lab.run.stage_context import demonstrator_of, new_policy, build_stage
from cua_lab.engine.engine import Engine
from cua_lab.training.trainer import GRPOTrainer
from tools.floors import ROOT, read_floors

PACKAGE = ROOT / "cua_lab"
ANONYMOUS = ("<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
Place = tuple[str, str]
"""(file under the package, qualified name of the function)."""


@dataclass(slots=True)
class Trace:
    """What was entered, and from where."""

    functions: set[Place] = field(default_factory=set)
    changes: set[tuple[Place, Place]] = field(default_factory=set)

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}


def room_of(file: str) -> str:
    """`viz/report.py` stands in `viz`, `tasks.py` in `tasks`."""
    return file.split("/")[0].removesuffix(".py")


def place_of(code: CodeType, package: Path) -> Place | None:
    """Where in the package a function stands; `None` for one of somebody else."""
    name = code.co_filename
    if not name.startswith(f"{package}/") or code.co_name == "<module>":
        return None
    return name[len(str(package)) + 1 :], code.co_qualname


@contextmanager
def traced(package: Path = PACKAGE) -> Iterator[Trace]:
    """Watch every call, in this thread and in those that start meanwhile."""
    trace = Trace()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (here := place_of(frame.f_code, package)) is None:
            return
        if frame.f_code.co_name not in ANONYMOUS:
            trace.functions.add(here)
        caller = frame.f_back
        while caller is not None and (there := place_of(caller.f_code, package)) is None:
            caller = caller.f_back
        if caller is not None and there is not None and room_of(there[0]) != room_of(here[0]):
            trace.changes.add((there, here))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def episode_and_update(seed: int = 0) -> Trace:
    """Play one click, stitch it, and train on it beside a twin with another reward."""
    recipe = load_recipe("smoke")
    setup = build_stage(recipe, recipe.stages[0])
    policy = new_policy(setup, demonstrator_of(setup))
    engine = Engine(policy)
    worker = Worker(engine, setup.config, setup.runtime, concurrency=1)
    trainer = GRPOTrainer(policy, setup.stage.grpo)
    codec = codec_from_tokenizer(policy.tokenizer)
    (plan, *_) = setup.training_plans(seed)
    try:
        with traced() as trace:
            (episode,) = asyncio.run(worker.play([plan]))
            images = episode_images(episode.screenshots, policy.vision, merge=policy.merge)
            (sample,) = samples_of(
                stitch(episode.turns, codec),
                images,
                reward=episode.reward or 0.0,
                group=episode.group,
                episode=episode.id,
                status=episode.status,
            )
            trainer.step([sample, _twin(sample)])
            engine.weights_updated("1")
    finally:
        engine.close()
    return trace


def _twin(sample: Sample) -> Sample:
    """A member of the same group that did better: alone an episode has no advantage."""
    return dataclasses.replace(sample, episode="twin", reward=(sample.reward or 0.0) + 1)


def upward(trace: Trace) -> set[tuple[Place, Place]]:
    """Changes into a room that stands above the caller's own."""
    floors = read_floors(ROOT / "pyproject.toml")
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}
    return {
        (there, here)
        for there, here in trace.changes
        if floor.get(room_of(here[0]), 99) < floor.get(room_of(there[0]), -1)
    }


def report(trace: Trace, *, calls: bool = False) -> str:
    """The sums, and with `calls` each change of room."""
    lines = [
        f"{len(trace.files)} files, {len(trace.functions)} functions, "
        f"{len(trace.changes)} room changes, {len(upward(trace))} of them upward"
    ]
    if calls:
        lines += [
            f"{there[0]}:{there[1]} -> {here[0]}:{here[1]}" for there, here in sorted(trace.changes)
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(episode_and_update(), calls="--calls" in sys.argv))
