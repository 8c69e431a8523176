"""Stages side by side change nothing but the time, stop in good order, and outlive nobody."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cua_lab.errors import LabError
from cua_lab.files import watch_faults
from cua_lab.recipes import Recipe, dump_recipe, parse_recipe
from cua_lab.run.folder import STAGES, RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.lock import locked
from cua_lab.run.progress import Progress
from cua_lab.run.recovery import is_finished
from cua_lab.run.stage_process import STOPPED, play_stage
from cua_lab.run.stage_processes import StageProcess, StageProcesses, most_at_once
from tests.run.support_kill import TINY, Death, Killed, differing, leftovers, outcome, steady


def tiny(at_once: int | None) -> Recipe:
    text = TINY.replace("parallel_stages: 1", f"parallel_stages: {at_once or 'null'}")
    return parse_recipe(text, name="tiny")


ENDLESS = "steps: 9999,"


def side_by_side(recipe: Recipe, at_once: int = 2) -> Recipe:
    return replace(recipe, run=replace(recipe.run, parallel_stages=at_once))


def played(recipe: Recipe, path: Path) -> dict[str, Any]:
    return asyncio.run(run_recipe(recipe, RunFolder.create(path, resume=False)))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the tiny run leaves when its stages take one after the other."""
    path = tmp_path_factory.mktemp("one") / "run"
    played(tiny(1), path)
    return outcome(path)


def test_stages_side_by_side_leave_the_same_run_to_the_last_bit(
    smoke_run: Path, smoke_recipe: Recipe, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    summary = played(side_by_side(smoke_recipe), path)
    assert differing(path, outcome(smoke_run)) == []
    assert (path / "viewer.json").read_bytes() == (smoke_run / "viewer.json").read_bytes()
    one = json.loads((smoke_run / "summary.json").read_text())
    for name in ("logprob_gap_max", "first_ratio_max_error"):
        assert summary[name] == one[name]
    assert set(summary["seconds"]) == set(one["seconds"])
    assert summary["peak_rss_gib"] > one["peak_rss_gib"], "both processes count"
    lines = [(p / "timings.jsonl").read_text().count("\n") for p in (path, smoke_run)]
    assert lines[0] == lines[1]
    assert not (path / STAGES).exists()
    assert leftovers(path) == []


@pytest.mark.parametrize(
    ("setting", "stages", "cores", "found"),
    [("null", 2, 2, 2), ("null", 2, 1, 1), ("null", 2, 8, 2), ("3", 2, 1, 2), ("1", 2, 8, 1)],
)
def test_as_many_stages_at_once_as_there_are_cores_or_as_the_recipe_says(
    monkeypatch: pytest.MonkeyPatch, setting: str, stages: int, cores: int, found: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    recipe = tiny(None if setting == "null" else int(setting))
    assert most_at_once(recipe) == found


def test_two_threads_a_stage_and_a_server_outside_leave_room_for_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    recipe = tiny(None)
    assert most_at_once(replace(recipe, run=replace(recipe.run, threads=2))) == 1
    assert most_at_once(replace(recipe, engine=replace(recipe.engine, kind="vllm"))) == 1


def test_two_policies_are_not_pushed_to_one_server() -> None:
    server = "engine: {kind: vllm, url: 'http://127.0.0.1:1'}\n"
    with pytest.raises(LabError, match=r"parallel_stages is 2, but the server of engine\.url"):
        parse_recipe(server + TINY.replace("parallel_stages: 1", "parallel_stages: 2"), name="x")


def begun(recipe: Recipe, path: Path) -> RunFolder:
    """A run's folder, as its processes find it."""
    folder = RunFolder.create(path, resume=False)
    folder.write("config.yaml", dump_recipe(recipe))
    Progress().save(folder)
    return folder


def test_killed_anywhere_a_stage_of_its_own_goes_on_to_the_same_bits(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """First the stage's own process dies at each kind of write, then the run that takes it over."""
    path, recipe = tmp_path / "run", tiny(1)
    folder = begun(recipe, path)
    chosen = {
        ("after append", "metrics.jsonl"),
        ("after rename", "warm-up"),
        ("before rename", "step-000003"),
    }
    of_the_stage = killed_at_each_new_point(
        lambda: asyncio.run(play_stage(path, "two")), lambda name, where: (name, where) in chosen
    )
    assert set(of_the_stage) == chosen
    assert is_finished(recipe.stage("two"), Progress.load(folder.of_stage("two")))
    go_on = RunFolder(path)
    of_the_run = killed_at_each_new_point(
        lambda: asyncio.run(run_recipe(recipe, go_on)),
        lambda *_: is_finished(recipe.stage("one"), Progress.load(go_on)),
    )
    assert ("before remove", ".two.partial") in of_the_run, "its records, as they are removed"
    assert differing(path, expected) == []
    assert not (path / STAGES).exists()
    assert leftovers(path) == []


def killed_at_each_new_point(
    play: Callable[[], Any], fatal: Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """Play until it ends, dying each time at the first fatal fault point not yet died at."""
    met: list[tuple[str, str]] = []

    def new(name: str, where: Path, count: int) -> bool:
        return (name, steady(where)) not in met and fatal(name, steady(where))

    while True:
        death = Death(new)
        try:
            with watch_faults(death):
                play()
            return met
        except Killed:
            met.append(death.seen[-1])


BROKEN = """  - name: broken
    tasks: {template: targets-click, args: {level: 1, width: 96, height: 96}}
    policy: {checkpoint: /nowhere}
"""


def endless(more: str = "", *, stages: int = 2) -> str:
    """A recipe whose stages come to GRPO soon and never to its end."""
    text = TINY.replace("parallel_stages: 1", "parallel_stages: 2").replace("steps: 3,", ENDLESS)
    return "- name".join(text.split("- name")[: 1 + stages]).rstrip(" ") + more


def trains(path: Path, stage: str) -> bool:
    """Whether a stage has come to GRPO."""
    return any((path / "checkpoint" / stage).glob("step-*"))


def test_a_stage_that_fails_ends_the_run_with_its_error_and_the_other_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy of the second stage is not there, which is found while the first one trains."""
    path = tmp_path / "run"
    failed = StageProcess.ended

    def once_the_other_trains(child: StageProcess) -> bool:
        return trains(path, "one") and failed(child)

    monkeypatch.setattr(StageProcess, "ended", once_the_other_trains)
    with pytest.raises(LabError, match="nowhere"):
        played(parse_recipe(endless(BROKEN, stages=1), name="tiny"), path)
    progress = Progress.load(RunFolder(path))
    lines = list(RunFolder(path).records("metrics.jsonl"))
    assert progress.stage("one").step == lines[-1]["step"] >= 1, "stopped as by Ctrl-C"
    assert not (path / "summary.json").exists()


def test_a_process_that_was_killed_is_named_and_so_is_what_to_do(tmp_path: Path) -> None:
    folder = begun(tiny(2), tmp_path / "run")

    async def killed() -> None:
        with StageProcesses(tiny(2), folder, ["two"]) as beside:
            beside._fill(1)
            beside._running["two"].process.kill()
            await beside.take_over("two", Progress())

    with pytest.raises(LabError, match=r"stage 'two' was ended by SIGKILL.*memory.*--resume"):
        asyncio.run(killed())


SCRIPT = """
import asyncio, sys
from pathlib import Path
from cua_lab.cli.runs import stoppable
from cua_lab.recipes import load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
path = Path(sys.argv[1])
with stoppable(path, "again"):
    folder = RunFolder.create(path, resume=False)
    try:
        asyncio.run(run_recipe(load_recipe(path.with_suffix(".yaml")), folder))
    except KeyboardInterrupt:
        sys.exit(143)
"""
PATIENCE_S = 120
"""For two processes to start on a busy machine; not waited for where all is well."""


def running_side_by_side(tmp_path: Path) -> tuple["subprocess.Popen[bytes]", Path]:
    """A run with both stages in GRPO, which has no end."""
    path = tmp_path / "run"
    path.with_suffix(".yaml").write_text(endless())
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TQDM_DISABLE": "1"},
    )
    until = time.monotonic() + PATIENCE_S
    while not (trains(path, "one") and trains(path, "two")):
        if run.poll() is not None or time.monotonic() > until:
            run.kill()
            raise AssertionError(f"the run has not come to GRPO; its status is {run.poll()}")
        time.sleep(0.05)
    return run, path


def holders(path: Path) -> bool:
    """Whether a process still holds the run's folder."""
    try:
        with locked(path, patience_s=PATIENCE_S):
            return False
    except LabError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_the_run_ends_all_its_processes_and_loses_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The lock is held by all of them, so a lock that is free says that all are gone."""
    run, path = running_side_by_side(tmp_path)
    run.send_signal(number)
    assert run.wait(PATIENCE_S) == (128 + number if number == signal.SIGTERM else -number)
    assert not holders(path)
    records = RunFolder(path).of_stage("two")
    stopped = Progress.load(records).stage("two").step
    steps = [line["step"] for line in records.records("metrics.jsonl") if line["phase"] == "grpo"]
    assert stopped >= 1
    if number == signal.SIGTERM:
        assert steps[-1] == stopped, "its last step has a checkpoint"


def test_a_stage_that_is_asked_to_stop_says_so_by_its_status() -> None:
    assert STOPPED == 143
