"""How much of the package one click episode and one update pass through.

    python tools/trace_path.py            # the sums
    python tools/trace_path.py --calls    # and every change, in order

What is counted, between the plan of an episode and the weights after an update: files and functions
of the package that were entered (comprehensions and lambdas too), and room changes: how often the
next function that a thread enters stands in another room than the one before, which is how often
somebody who reads along has to change rooms. Building policy, engine and runtime is not counted.
What is played is the smoke recipe's click, untrained: the numbers are about reading, not learning.
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

from cua_lab.engine.engine import Engine
from cua_lab.play.worker import Worker
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import build_stage, demonstrator_of, new_policy
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.stitching.episode_images import episode_images
from cua_lab.stitching.sample import Sample, samples_of
from cua_lab.stitching.stitch import stitch
from cua_lab.training.trainer import GRPOTrainer
from tools.floors import ROOT, read_floors

PACKAGE = ROOT / "cua_lab"
Place = tuple[str, str]
"""(file under the package, qualified name of the function)."""


@dataclass(slots=True)
class Trace:
    """What was entered, and each change of room in order."""

    functions: set[tuple[Place, int]] = field(default_factory=set)
    """With the first line: a file may hold two of one name."""
    changes: list[tuple[Place, Place]] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        return {file for (file, _), _ in self.functions}


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
    last: dict[int, Place] = {}  # of each thread

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (here := place_of(frame.f_code, package)) is None:
            return
        trace.functions.add((here, frame.f_code.co_firstlineno))
        before = last.get(threading.get_ident(), here)
        if room_of(before[0]) != room_of(here[0]):
            trace.changes.append((before, here))
        last[threading.get_ident()] = here

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


def upward(trace: Trace) -> list[tuple[Place, Place]]:
    """Changes into a room on a floor above."""
    floors = read_floors(ROOT / "pyproject.toml")
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}  # 0: the top
    return [
        (before, here)
        for before, here in trace.changes
        if floor.get(room_of(here[0]), 99) < floor.get(room_of(before[0]), -1)
    ]


def report(trace: Trace, *, calls: bool = False) -> str:
    """The sums, and with `calls` each change of room."""
    lines = [
        f"{len(trace.files)} files, {len(trace.functions)} functions, "
        f"{len(trace.changes)} room changes, {len(upward(trace))} of them upward"
    ]
    if calls:
        lines += [f"{a[0]}:{a[1]} -> {b[0]}:{b[1]}" for a, b in trace.changes]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(episode_and_update(), calls="--calls" in sys.argv))
