"""Killed at any moment, a run goes on to the same bits, and nothing is counted twice."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from cua_lab import files
from cua_lab.errors import LabError
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from tests.run.support_kill import (
    Death,
    Killed,
    differing,
    leftovers,
    outcome,
    play,
    steady,
    tiny_recipe,
)

RECIPE = tiny_recipe()


def never(name: str, path: Path, count: int) -> bool:
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run; do not write into it."""
    path = tmp_path_factory.mktemp("whole") / "tiny"
    assert play(RECIPE, path, Death(never))
    return path


@pytest.fixture(scope="module")
def expected(whole: Path) -> dict[str, bytes]:
    return outcome(whole)


def test_the_tiny_run_learns_so_that_its_bits_say_something(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    grpo = [line for line in lines if line["phase"] == "grpo"]
    assert len(grpo) == 6
    assert all(line["updates"] == 1 and line["grad_norm"] > 0 for line in grpo)


def killed_at_each_new_point(path: Path) -> Iterator[tuple[str, str]]:
    """Run and go on, dying each time at the first fault point that was not yet died at."""
    met: set[tuple[str, str]] = set()

    def unmet(name: str, where: Path, count: int) -> bool:
        return (name, steady(where)) not in met

    while True:
        death = Death(unmet)
        if play(RECIPE, path, death):
            return
        met.add(death.seen[-1])
        yield death.seen[-1]


def test_killed_before_and_after_every_kind_of_write_it_ends_with_the_same_bits(
    tmp_path: Path, expected: dict[str, bytes], counted: Any
) -> None:
    """One run that is killed some fifty times, at every fault point that its files have."""
    points = set(killed_at_each_new_point(tmp_path / "run"))
    assert len(points) > 40
    for when in ("before", "after"):
        assert {
            (f"{when} append", "metrics.jsonl"),
            (f"{when} rename", "warm-up"),
            (f"{when} rename", "step-000003"),
            (f"{when} rename", "progress.json"),
            (f"{when} remove", ".step-000001.partial"),
            (f"{when} rename", "summary.json"),
        } <= points
    assert differing(tmp_path / "run", expected) == []
    assert leftovers(tmp_path / "run") == []
    counted("kill-each-kind", kills=len(points))


def killed_in_grpo(path: Path, *, checkpoints: int = 2) -> None:
    """A run that died right after a checkpoint of the first stage, so many of them there."""

    def fatal(name: str, where: Path, count: int) -> bool:
        return name == "after rename" and where.name == f"step-{checkpoints:06d}"

    assert not play(RECIPE, path, Death(fatal))


@pytest.mark.parametrize("torn", [["step-000002"], ["step-000001", "step-000002"]])
def test_torn_checkpoints_cost_time_and_no_bits(
    tmp_path: Path, expected: dict[str, bytes], torn: list[str]
) -> None:
    path = tmp_path / "run"
    killed_in_grpo(path)
    for name in torn:
        with (path / "checkpoint/one" / name / "model.safetensors").open("r+b") as file:
            file.truncate(100)
    assert play(RECIPE, path, Death(never))
    assert differing(path, expected) == []


def test_a_line_cut_in_the_middle_is_taken_back(tmp_path: Path, expected: dict[str, bytes]) -> None:
    path = tmp_path / "run"
    appended = 0

    def fatal(name: str, where: Path, count: int) -> bool:
        nonlocal appended
        appended += (name, where.name) == ("before append", "metrics.jsonl")
        if appended < 4:
            return False
        with where.open("ab") as file:
            file.write(b'{"stage": "one", "ta')
        return True

    assert not play(RECIPE, path, Death(fatal))
    assert play(RECIPE, path, Death(never))
    assert differing(path, expected) == []


@pytest.mark.parametrize("file", ["metrics.jsonl", "step-000002", "progress.json", "viewer.json"])
def test_a_full_disk_ends_the_run_and_what_was_good_stays_good(
    tmp_path: Path, expected: dict[str, bytes], file: str, counted: Any
) -> None:
    """After a full disk, the sums of the summary were doubled."""
    path, left = tmp_path / "run", 5

    def full(name: str, where: Path) -> None:
        nonlocal left
        left -= where.name == file and name.startswith("before")
        if left <= 0 or (file != "metrics.jsonl" and left < 5):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(where))

    with pytest.raises(OSError, match="No space left"):
        play(RECIPE, path, full)
    assert play(RECIPE, path, Death(never))
    assert differing(path, expected) == []
    counted("full-disk", runs=1)


def test_a_damaged_warm_up_is_named_and_nothing_is_trained_on_it(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    path = tmp_path / "run"
    killed_in_grpo(path, checkpoints=1)
    with (path / "checkpoint/one/warm-up/model.safetensors").open("r+b") as file:
        file.write(b"\0" * 64)
    with pytest.raises(LabError, match=r"warm-up of 'one'.*damaged: model.safetensors"):
        play(RECIPE, path, Death(never))


def test_records_that_are_gone_are_not_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "run"
    killed_in_grpo(path)
    os.truncate(path / "metrics.jsonl", 10)
    with pytest.raises(LabError, match=r"metrics.jsonl has 10 bytes of the .* records are lost"):
        play(RECIPE, path, Death(never))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stages": 1}', '{"format": 99}'])
def test_a_damaged_progress_file_is_one_line(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "progress.json").write_text(text)
    with pytest.raises(LabError, match=r"progress\.json"):
        asyncio.run(run_recipe(RECIPE, folder))


def test_a_run_of_an_earlier_version_is_refused_in_words_unless_it_has_ended(
    tmp_path: Path, whole: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    record = json.loads((path / "progress.json").read_text())
    for name in ("format", "records"):
        del record[name]
    (path / "progress.json").write_text(json.dumps(record))
    assert play(RECIPE, path, Death(never)), "it has ended: there is nothing to go on with"
    del record["stages"]["two"]
    (path / "progress.json").write_text(json.dumps(record))
    with pytest.raises(LabError, match=r"earlier version.*--overwrite"):
        play(RECIPE, path, Death(never))


def test_a_kill_while_an_old_run_is_deleted_leaves_one_that_has_not_begun(
    tmp_path: Path, whole: Path, expected: dict[str, bytes]
) -> None:
    count = 0
    while True:
        count += 1
        path = tmp_path / f"run-{count}"
        shutil.copytree(whole, path)
        death = Death(lambda name, where, seen, count=count: seen == count)
        folder = RunFolder.create(path, resume=False, overwrite=True)
        try:
            with files.watch_faults(death), folder.begin():
                assert leftovers(path) == []
                break
        except Killed:
            pass
        if not RunFolder(path).started:
            with RunFolder.create(path, resume=False).begin():
                assert {entry.name for entry in path.iterdir()} <= {
                    *(".lock", "frames", "config.yaml")
                }
    assert count > 10


SCRIPT = """
import sys
from pathlib import Path
from tests.run.support_kill import Death, play, tiny_recipe
play(tiny_recipe(), Path(sys.argv[1]), Death(lambda *_: False))
"""


def in_a_process(path: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)],
        env={**os.environ, "PYTHONPATH": os.getcwd(), "TQDM_DISABLE": "1"},
    )


@pytest.mark.nightly
def test_killed_at_every_single_fault_point_it_ends_with_the_same_bits(
    tmp_path: Path, expected: dict[str, bytes], counted: Any
) -> None:
    count, ended = 0, False
    while not ended:
        count += 1
        path = tmp_path / "run"
        ended = play(RECIPE, path, Death(lambda name, where, seen, count=count: seen == count))
        if not ended:
            assert play(RECIPE, path, Death(never))
        assert differing(path, expected) == [], f"killed at fault point {count}"
        shutil.rmtree(path)
    assert count > 150
    counted("kill-every-point", kills=count - 1)


def until_it_has_used(process: "subprocess.Popen[bytes]", cpu_s: float) -> bool:
    """Wait for its end, or until it has used so much CPU time; whether it still runs then. Wall
    time would say how busy this machine is, and not how far the run has come."""
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if sum(watched.cpu_times()[:2]) >= cpu_s:
                return True
        time.sleep(0.01)
    return False


def cpu_of_a_run(path: Path) -> float:
    """CPU seconds of one that nobody disturbs, in a process of its own."""
    before = os.times()
    assert in_a_process(path).wait() == 0
    after = os.times()
    return after[2] + after[3] - before[2] - before[3]  # of children


KILLED_RUNS = int(os.environ.get("CUA_LAB_KILLED_RUNS", "40"))


@pytest.mark.nightly
def test_killed_by_the_kernel_at_random_moments_it_ends_with_the_same_bits(
    tmp_path: Path, expected: dict[str, bytes], counted: Any
) -> None:
    whole_s, random, kills = cpu_of_a_run(tmp_path / "undisturbed"), Random(0), 0
    for trial in range(KILLED_RUNS):
        path = tmp_path / f"run-{trial}"
        for _ in range(4):
            process = in_a_process(path)
            if until_it_has_used(process, random.uniform(0.3, 1.0) * whole_s):
                process.send_signal(signal.SIGKILL)
                kills += 1
            if process.wait() == 0:
                break
        assert play(RECIPE, path, Death(never))
        assert differing(path, expected) == [], f"trial {trial}"
        assert leftovers(path) == []
    assert kills >= KILLED_RUNS
    counted("kill-random", kills=kills, runs=KILLED_RUNS)
