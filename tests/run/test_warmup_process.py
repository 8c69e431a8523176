"""A warm-up in a process of its own changes nothing but the time, and outlives nobody."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from cua_lab.recipes import Recipe, dump_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.progress import Progress
from cua_lab.run.stage_context import StageContext, build_stage
from cua_lab.run.warmup_process import FOLDER, WarmupProcess


def ahead(recipe: Recipe) -> Recipe:
    return replace(recipe, run=replace(recipe.run, warm_ahead=True))


def game_of(recipe: Recipe, path: Path) -> tuple[RunFolder, StageContext]:
    """A run that has not begun, and the stage whose warm-up is made ahead."""
    folder = RunFolder.create(path, resume=False)
    folder.write("config.yaml", dump_recipe(recipe))
    return folder, build_stage(recipe, recipe.stages[1])


def test_a_warm_up_made_ahead_is_the_same_to_the_last_bit(
    smoke_run: Path, smoke_recipe: Recipe, tmp_path: Path
) -> None:
    path = tmp_path / "ahead"
    summary = asyncio.run(run_recipe(ahead(smoke_recipe), RunFolder.create(path, resume=False)))
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert (path / name).read_bytes() == (smoke_run / name).read_bytes()
    theirs = (path / "timings.jsonl").read_text().splitlines()
    assert len(theirs) == len((smoke_run / "timings.jsonl").read_text().splitlines())
    assert not (path / FOLDER).exists()
    assert summary["tokens_per_s"]["sft"] > 0
    assert summary["peak_rss_gib"] > 0.3, "the child's memory counts"


def test_a_child_that_fails_leaves_the_warm_up_to_its_parent(
    smoke_recipe: Recipe, tmp_path: Path
) -> None:
    folder, setup = game_of(ahead(smoke_recipe), tmp_path / "run")
    (folder.path / "config.yaml").write_text("name: nonsense\n")
    progress = Progress()
    with WarmupProcess(folder) as warmer:
        warmer.start(setup)
        begun = RunFolder.create(folder.path / FOLDER / setup.stage.name, resume=False)
        begun.append("metrics.jsonl", {"step": 1})
        asyncio.run(warmer.adopt(setup, progress))
    assert not progress.stage(setup.stage.name).warm
    assert not (folder.path / "metrics.jsonl").exists()
    assert not (folder.path / FOLDER).exists(), "what it had begun is gone"


def test_leaving_ends_the_child_and_a_finished_one_is_kept_for_the_next_sitting(
    smoke_recipe: Recipe, tmp_path: Path
) -> None:
    folder, setup = game_of(ahead(smoke_recipe), tmp_path / "run")
    name = setup.stage.name
    with WarmupProcess(folder) as warmer:
        warmer.start(setup)
        child = warmer._child
    assert child is not None
    assert child.returncode is not None
    finished = RunFolder.create(folder.path / FOLDER / name, resume=False)
    progress = Progress()
    progress.stage(name).warm = True
    progress.save(finished)
    finished.warm_up(name).mkdir(parents=True)
    with WarmupProcess(folder) as warmer:
        warmer.start(setup)
        assert warmer._child is None


def test_a_child_ends_with_its_parent_even_if_that_is_killed() -> None:
    """The kernel closes the parent's end of the pipe: that is all the child hears."""
    code = (
        "import time; from cua_lab.run.warmup_process import end_with_parent; end_with_parent();"
        "print('up', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"up\n"
    child.stdin.close()
    assert child.wait(timeout=20) == 1
