"""A policy that has learnt to call its tool, a second set of weights, and the server under test."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cua_lab.demonstrators.demos import corpus_of
from cua_lab.policy.policy import Policy, build_policy, load_policy
from cua_lab.policy.shape import Shape
from cua_lab.recipes import load_recipe
from cua_lab.recipes.settings import SftSettings
from cua_lab.run.stage_context import StageContext, build_stage, demonstrator_of
from cua_lab.training.warmup import sft
from tests.engines.servers import SERVERS, Server

SHAPE = Shape(hidden=64, layers=2, vision_hidden=64, heads=2, grid_side=6)
"""vLLM's CPU attention has no heads smaller than 32."""
TURNS = 3
OTHER_SAMPLING = {
    "do_sample": True,
    "temperature": 0.01,
    "top_p": 0.001,
    "top_k": 1,
    "min_p": 0.9,
    "repetition_penalty": 1.5,
}
"""The checkpoints' generation_config; a request that leaves one unsaid gives one answer for all
seeds, with log-probabilities of another distribution."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A checkpoint of a policy on disk, and the same policy in memory."""

    folder: Path
    policy: Policy


@pytest.fixture(scope="session")
def game() -> StageContext:
    """2048 on a screen of nine image tokens."""
    changed = ("agent.max_turns", "tasks.args.turns")
    recipe = load_recipe("smoke", [f"stages.game.{name}={TURNS}" for name in changed])
    return build_stage(recipe, recipe.stages[1])


@pytest.fixture(scope="session")
def checkpoints(
    game: StageContext, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Trained, Trained]:
    """The policy after enough demonstrations for calls, and after some more."""
    player = demonstrator_of(game)
    policy = build_policy(SHAPE, corpus_of((player,), count=40), seed=0)
    folders = []
    for number, steps in enumerate((24, 4)):
        config = SftSettings(
            steps=steps,
            batch=8,
            demonstrations=64,
            lr=4e-3,
            warmup_steps=3,
            cooldown_steps=4,
        )
        sft(policy, player, config, seed=number, progress=False)
        folder = policy.save(tmp_path_factory.mktemp("checkpoint") / f"step-{number}")
        folders.append(folder)
    first, second = (Trained(folder, load_policy(folder)) for folder in folders)
    for folder in folders:
        _want_other_sampling(folder)
    return first, second


def _want_other_sampling(folder: Path) -> None:
    """Each option another way than neutral, as servers read it (NVIDIA-NeMo/RL#3497)."""
    path = folder / "generation_config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(saved | OTHER_SAMPLING), encoding="utf-8")


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param("vllm", marks=pytest.mark.engine),
        pytest.param("sglang", marks=pytest.mark.engine),
    ],
)
def server(request: pytest.FixtureRequest, checkpoints: Any) -> Iterator[Server]:
    """Started once for all tests of the contract; it serves the first checkpoint."""
    with SERVERS[request.param](checkpoints[0].folder) as running:
        yield running
