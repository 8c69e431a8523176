"""A run that dies at a fault point: after it, nothing it does reaches the disk any more.

What a killed process leaves is what was on the disk at that moment. Here it is an exception that no
code catches, and that every later fault point raises again, so that no clean-up writes anything.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cua_lab.files import FaultWatcher, watch_faults
from cua_lab.recipes import Recipe, parse_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.stage import StageRun

TINY = """
run: {parallel_stages: 1, concurrency: 2, checkpoint_every: 1, keep_checkpoints: 2}
policy: {hidden: 32, layers: 1, vision_hidden: 32, vision_depth: 1, grid_side: 6}
sft: {demonstrations: 2, steps: 2, batch: 2, warmup_steps: 1, cooldown_steps: 1}
grpo: {steps: 3, groups: 1, group_size: 2, warmup_steps: 1}
eval: {episodes: 2, ablations: [random]}
agent: {max_turns: 1, max_tokens: 8}
tool: {actions: [click]}
stages:
  - name: one
    tasks: {template: targets-click, args: {level: 1, width: 96, height: 96}}
  - name: two
    tasks: {template: targets-click, args: {level: 1, width: 96, height: 96}}
"""


class Killed(BaseException):
    """The process is gone."""


def steady(path: Path) -> str:
    """A path's name without the process and the counter that hidden names carry."""
    return re.sub(r"\.\d+-\d+\.partial$", ".partial", path.name)


class Death:
    """Counts fault points, and dies at the first that `fatal` says yes to."""

    def __init__(self, fatal: Callable[[str, Path, int], bool]) -> None:
        self.fatal = fatal
        self.seen: list[tuple[str, str]] = []
        self.dead = False

    def __call__(self, name: str, path: Path) -> None:
        if self.dead:
            raise Killed
        self.seen.append((name, steady(path)))
        if self.fatal(name, path, len(self.seen)):
            self.dead = True
            raise Killed


def tiny_recipe() -> Recipe:
    return parse_recipe(TINY, name="tiny")


def graded(samples: Callable[..., Any]) -> Callable[..., Any]:
    """Rewards that differ, so that every step moves the weights: this policy never hits."""

    def with_rewards(run: StageRun, episode: Any) -> Any:
        return [
            replace(sample, reward=sum(map(int, sample.stitched.tokens)) % 97 / 97)
            for sample in samples(run, episode)
        ]

    return with_rewards


def play(recipe: Recipe, path: Path, death: FaultWatcher) -> bool:
    """Run or go on until the end or until it dies; whether it came to the end."""
    folder = RunFolder(path)
    try:
        with watch_faults(death), patch.object(StageRun, "samples", graded(StageRun.samples)):
            folder = RunFolder.create(path, resume=folder.started)
            asyncio.run(run_recipe(recipe, folder))
        return True
    except Killed:
        return False


def outcome(path: Path) -> dict[str, bytes]:
    """What a run must leave the same, byte for byte: records, weights, optimizer, frames, sums."""
    wanted = ("metrics.jsonl", "episodes.jsonl", "checkpoint/**/*.safetensors", "frames/*.png")
    summary = json.loads((path / "summary.json").read_text())
    sums = {key: summary[key] for key in ("tasks", "episodes", "divergences", "tokens")}
    return {"sums": json.dumps(sums, sort_keys=True).encode()} | {
        file.relative_to(path).as_posix(): file.read_bytes()
        for pattern in wanted
        for file in sorted(path.glob(pattern))
    }


def differing(path: Path, expected: dict[str, bytes]) -> list[str]:
    """The names of what is not the same; a comparison of bytes would print them all."""
    found = outcome(path)
    return [name for name in {**expected, **found} if found.get(name) != expected.get(name)]


def leftovers(path: Path) -> list[str]:
    """Whatever is half written or half removed."""
    return [found.name for found in path.rglob(".*") if found.name != ".lock"]
