"""The laptop's policy learns against a real engine in a process and an environment of its own.

    make engine-run

Minutes; one of the nightly tests. Its embedded twin is `tests/run/test_engines.py`.
"""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cua_lab.play.url_worker import UrlWorker
from cua_lab.recipes import Recipe, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.stage_context import StageContext
from cua_lab.serving import launch
from cua_lab.serving.outside import OutsideEngine
from tests.engines.conftest import Trained

pytestmark = [
    pytest.mark.engine,
    pytest.mark.nightly,
    pytest.mark.parametrize("kind", ["vllm", "sglang"]),
]
STEPS = 24
LATE = 6
"""Steps at either end whose rewards are compared."""


def skip_absent(kind: str) -> None:
    if reason := launch.why_absent(launch.KINDS[kind]):
        pytest.skip(reason)


def recipe_of(kind: str) -> Recipe:
    """The laptop's clicks, with a head size that vLLM's CPU attention has."""
    recipe = load_recipe(
        "laptop",
        [
            f"engine.kind={kind}",
            "policy.heads=3",
            "run.concurrency=16",  # desktops and a server share two cores; 64 timed out
            f"stages.click.grpo.steps={STEPS}",
            "stages.click.sft.check_episodes=64",
            "eval.episodes=64",
            "eval.ablations=[]",
        ],
    )
    return replace(recipe, stages=(recipe.stage("click"),))


def test_the_reward_rises_and_engine_and_trainer_agree_after_every_push(
    kind: str, tmp_path: Path
) -> None:
    skip_absent(kind)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    asyncio.run(run_recipe(recipe_of(kind), folder))
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    steps: list[dict[str, Any]] = [r for x in lines if (r := json.loads(x))["phase"] == "grpo"]
    assert len(steps) == STEPS
    assert max(step["logprob_gap_max"] for step in steps) < 1e-4
    rewards = [step["reward_mean"] for step in steps]
    assert sum(rewards[-LATE:]) > sum(rewards[:LATE]), rewards
    lost = [x for x in (folder.path / "episodes.jsonl").read_text().splitlines() if '"failed"' in x]
    assert not lost


def test_a_server_that_is_killed_is_started_again_and_costs_no_episode(
    kind: str, checkpoints: tuple[Trained, Trained], game: StageContext, tmp_path: Path
) -> None:
    skip_absent(kind)
    engine = OutsideEngine(checkpoints[0].policy, kind, tmp_path)  # type: ignore[arg-type]
    try:
        worker = UrlWorker(engine, game.config, game.runtime, concurrency=8)
        before = asyncio.run(worker.play(game.training_plans(0)))
        assert engine._process is not None
        os.killpg(engine._process.process.pid, signal.SIGKILL)
        after = asyncio.run(worker.play(game.training_plans(0)))
        assert [e.status for e in after] == [e.status for e in before]
        if kind == "vllm":  # it honours seeds
            assert [[t.output_ids for t in e.turns] for e in after] == [
                [t.output_ids for t in e.turns] for e in before
            ]
    finally:
        engine.close()
