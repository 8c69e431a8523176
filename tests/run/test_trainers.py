"""Who learns in a run: by adapters beside a served copy, a step behind, or in two processes."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cua_lab.errors import LabError
from cua_lab.policy.policy import load_policy
from cua_lab.recipes import Recipe, dump_recipe, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.trainers import learns_apart

ROOT = Path(__file__).parents[2]
SMALL = ["grpo.steps=3", "eval.episodes=4", "eval.ablations=[]", "run.checkpoint_every=1"]
LORA = ["trainer.lora.r=4", "trainer.lora.alpha=8", "grpo.lr=1e-2"]
AHEAD = ["grpo.ahead=1", "grpo.tis_cap=2.0"]


def click(*overrides: str) -> Recipe:
    recipe = load_recipe("smoke", [*SMALL, *overrides])
    return replace(recipe, stages=(recipe.stage("click"),))


def play(recipe: Recipe, path: Path, *, resume: bool = False) -> list[dict[str, Any]]:
    asyncio.run(run_recipe(recipe, RunFolder.create(path, resume=resume)))
    return steps_of(path)


def steps_of(path: Path) -> list[dict[str, Any]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [r for line in lines if (r := json.loads(line))["phase"] == "grpo"]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A run as the laptop's are, whose warm-up the others begin with."""
    path = tmp_path_factory.mktemp("plain") / "run"
    steps = play(click(), path)
    return RunFolder(path).warm_up("click"), steps


def from_warm(warm: Path, *overrides: str) -> Recipe:
    return click(f"policy.checkpoint={warm}", "sft.steps=0", *overrides)


def test_adapters_learn_beside_a_merged_copy_that_the_engine_serves(warm, tmp_path: Path) -> None:
    recipe = from_warm(warm[0], *LORA)
    assert learns_apart(recipe, recipe.stages[0])
    steps = play(recipe, tmp_path / "run")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert any(step["updates"] for step in steps)
    assert all(step["logprob_gap_max"] < 1e-4 for step in steps if step["updates"])
    last = max((tmp_path / "run/checkpoint/click").glob("step-*"))
    assert (last / "training/adapter/adapter_model.safetensors").is_file()
    merged, first = (load_policy(path).model.state_dict() for path in (last, warm[0]))
    assert merged.keys() == first.keys()
    moved = {name for name in merged if not torch.equal(merged[name], first[name])}
    assert moved
    assert all("proj" in name and "visual" not in name for name in moved)


def test_a_step_ahead_is_reported_and_gives_the_same_every_time(warm, tmp_path: Path) -> None:
    recipe = from_warm(warm[0], *AHEAD)
    first, second = (play(recipe, tmp_path / name) for name in ("a", "b"))
    assert [step["staleness"] for step in first] == [0, 1, 1]
    assert first == second
    assert all(step["tis_mean"] > 0 for step in first if step["updates"])
    assert "staleness" not in warm[1][0], "off, nothing is said of it"


def test_a_run_that_was_stopped_while_ahead_goes_on(warm, tmp_path: Path) -> None:
    recipe = from_warm(warm[0], *AHEAD)
    play(from_warm(warm[0], *AHEAD, "grpo.steps=2"), tmp_path / "run")
    # As if it had been stopped after its second checkpoint: evaluated it was not.
    path = tmp_path / "run"
    progress = json.loads((path / "progress.json").read_text())
    progress["stages"]["click"]["after"] = None
    (path / "progress.json").write_text(json.dumps(progress))
    (path / "config.yaml").write_text(dump_recipe(recipe))
    steps = play(recipe, path, resume=True)
    assert [step["staleness"] for step in steps] == [0, 1, 0]


def test_ahead_without_a_correction_is_refused() -> None:
    with pytest.raises(LabError, match="tis_cap is not set"):
        click("grpo.ahead=1")


def test_split_weights_need_processes_and_a_server_outside() -> None:
    with pytest.raises(LabError, match=r"accelerate launch --num_processes N"):
        asyncio.run(run_recipe(click("trainer.shard=true"), RunFolder(Path("unused"))))


def test_a_run_in_two_processes_writes_what_one_writes(warm, tmp_path: Path) -> None:
    """`accelerate launch --num_processes 2 -m cua_lab run`, by its environment."""
    recipe = tmp_path / "two.yaml"
    tree = yaml.safe_load(dump_recipe(from_warm(warm[0], "grpo.steps=2", "grpo.lr=1e-3")))
    recipe.write_text(yaml.safe_dump(tree))
    one = play(load_recipe(recipe), tmp_path / "one")
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    port = str(20000 + os.getpid() % 20000)
    command = [sys.executable, "-m", "cua_lab", "run", "--recipe", str(recipe), "--name", "two"]
    both = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                **shared,
                "MASTER_PORT": port,
                "RANK": rank,
                "LOCAL_RANK": rank,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ("0", "1")
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    two = steps_of(tmp_path / "runs/two")
    assert [step["reward_mean"] for step in two] == [step["reward_mean"] for step in one]
    for ours, theirs in zip(two, one, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3, abs=1e-6)
        assert ours["padded_tokens"] == theirs["padded_tokens"]
