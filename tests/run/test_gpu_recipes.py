"""The recipes for real models, on a CPU: tiny random networks of both families take two steps.

Nothing is learnt: a random network says no call. That the parts of a recipe fit is what is shown.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cua_lab.demonstrators.demos import corpus_of
from cua_lab.policy.policy import build_policy, load_policy
from cua_lab.policy.shape import Shape
from cua_lab.policy.tokenizer import train_tokenizer
from cua_lab.recipes import Recipe, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.stage_context import build_stage, demonstrator_of
from tests.support_qwen25 import save_qwen25

ON_A_LAPTOP = [
    *("engine.kind=embedded", "engine.flags=[]", "trainer.device=cpu", "trainer.precision=float32"),
    *("run.concurrency=4", "grpo.steps=2", "grpo.groups=2", "grpo.group_size=2"),
    *("grpo.logprob_gap_limit=1e-4", "grpo.kl=k3", "grpo.kl_coef=0.1", "grpo.warmup_steps=0"),
    *("eval.episodes=2", "eval.ablations=[]", "agent.max_tokens=8", "agent.short_prompt=true"),
    *("tasks.package=cua_lab.envs.lab", "tasks.template=targets-click", "tasks.vary={}"),
    "tasks.args={level: 1, width: 96, height: 96}",
]


def recipe_of(name: str, checkpoint: Path, *more: str) -> Recipe:
    """The recipe's clicks, on the lab's own screen, which needs no browser."""
    recipe = load_recipe(name, [*ON_A_LAPTOP, f"policy.checkpoint={checkpoint}", *more])
    return replace(recipe, stages=(recipe.stage("clicks"),))


def corpus() -> Any:
    smoke = load_recipe("smoke")
    return corpus_of((demonstrator_of(build_stage(smoke, smoke.stage("click"))),), count=20)


def tiny_qwen3(folder: Path) -> Path:
    shape = Shape(hidden=64, layers=2, vision_hidden=32, grid_side=6)
    return build_policy(shape, corpus(), seed=0).save(folder)


def tiny_qwen25(folder: Path) -> Path:
    return save_qwen25(folder, train_tokenizer(corpus()), hidden=64)


@pytest.mark.parametrize(
    ("name", "family"),
    [("qwen3-vl-2b-lora", tiny_qwen3), ("qwen3-vl-4b", tiny_qwen25)],
    ids=["adapters, Qwen3-VL", "whole, Qwen2.5-VL"],
)
def test_two_steps_of_a_recipe_for_a_gpu(name: str, family: Any, tmp_path: Path) -> None:
    checkpoint = family(tmp_path / "model")
    space = [] if family is tiny_qwen3 else ["tool.coordinate_space=pixels"]
    recipe = recipe_of(name, checkpoint, *space)
    folder = RunFolder.create(tmp_path / "run", resume=False)
    asyncio.run(run_recipe(recipe, folder))
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    steps = [r for line in lines if (r := json.loads(line))["phase"] == "grpo"]
    assert [step["updates"] for step in steps] == [1, 1], "with a KL term no step is skipped"
    assert all(step["logprob_gap_max"] < 1e-4 for step in steps)
    last = max((folder.checkpoints / "clicks").glob("step-*"))
    assert load_policy(last).family == load_policy(checkpoint).family
    assert (last / "training/adapter").is_dir() == (recipe.stages[0].trainer.lora is not None)
