"""One real smoke run for all tests of the main job: two tasks, HUD, RFB, engine, GRPO."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cua_lab.recipes import Recipe, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.progress import Progress, StageProgress


@pytest.fixture(scope="session")
def smoke_recipe() -> Recipe:
    return load_recipe(
        "smoke", ["run.parallel_stages=1", "eval.ablations=[shuffled, blank, random, blind]"]
    )


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory, smoke_recipe: Recipe) -> Path:
    """The folder of a finished run; do not write into it."""
    path = tmp_path_factory.mktemp("runs") / "smoke"
    asyncio.run(run_recipe(smoke_recipe, RunFolder.create(path, resume=False)))
    return path


@pytest.fixture
def warm_copy(smoke_run: Path, tmp_path: Path) -> Callable[[], Path]:
    """Copies of the run as it stood right after both warm-ups."""
    made = 0

    def copy() -> Path:
        nonlocal made
        made += 1
        path = tmp_path / f"copy-{made}"
        shutil.copytree(smoke_run, path)
        for step in path.glob("checkpoint/*/step-*"):
            shutil.rmtree(step)
        folder = RunFolder(path)
        folder.keep(lambda record: record["phase"] == "sft")
        stages = json.loads((path / "progress.json").read_text())["stages"]
        Progress(stages={name: StageProgress(warm=True) for name in stages}).save(folder)
        return path

    return copy
