"""A run's folder is one run's at a time, and nothing that is not a run's is ever deleted."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.recipes import dump_recipe
from cua_lab.recipes.loader import changes
from cua_lab.run import lock
from cua_lab.run.folder import RunFolder, check_name
from cua_lab.run.job import run_recipe
from tests.cli.support_cli import cua_lab
from tests.run.support_kill import Death, play, tiny_recipe


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)


def a_run(path: Path) -> RunFolder:
    """A run that has begun."""
    folder = RunFolder.create(path, resume=False)
    folder.write("config.yaml", dump_recipe(tiny_recipe()))
    folder.append("metrics.jsonl", {"step": 1})
    return folder


@pytest.mark.parametrize("how", [{"resume": True}, {"resume": False, "overwrite": True}])
def test_a_run_that_goes_on_is_neither_joined_nor_deleted(tmp_path: Path, how: dict) -> None:
    """ray#35006: two runs in one folder both ended well, with mixed figures."""
    folder = a_run(tmp_path / "run")
    with RunFolder(folder.path).begin():
        again = RunFolder.create(folder.path, **how)
        with pytest.raises(LabError, match=rf"in use by a run.*process {os.getpid()}"):
            asyncio.run(run_recipe(tiny_recipe(), again))
    assert (folder.path / "metrics.jsonl").read_text()


def test_a_lock_ends_with_its_process_and_with_the_children_that_hold_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cua_lab.run.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LabError, match=f"process {holder.pid}"), lock.locked(tmp_path):
        pass
    holder.kill()
    holder.wait()
    with lock.locked(tmp_path, patience_s=60) as handle:
        child = subprocess.Popen(["sleep", "600"], pass_fds=(handle,))
    with pytest.raises(LabError, match="in use"), lock.locked(tmp_path):
        pass
    child.kill()
    child.wait()
    with lock.locked(tmp_path, patience_s=60):
        pass


@pytest.mark.parametrize("name", ["..", ".", "", " ", "a/b", "/abs", "a\\b", "-x", ".x", "a\0b"])
def test_a_name_is_no_path(name: str) -> None:
    """`--overwrite --name ..` emptied the working directory."""
    with pytest.raises(LabError, match="is no name for a run's folder"):
        check_name(name)


@pytest.mark.parametrize("name", ["laptop", "mein Lauf 2", "пробег", "a.b-c_d", "x" * 100])
def test_a_name_may_be_anything_else(name: str) -> None:
    assert check_name(name) == name


def test_overwriting_deletes_a_run_and_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    folder.save_frame("one", b"png")
    (folder.path / "notes.txt").write_text("mine")
    with RunFolder.create(folder.path, resume=False, overwrite=True).begin():
        left = {path.name for path in folder.path.iterdir()}
        assert left == {".lock", "frames", "notes.txt"}
        assert not list((folder.path / "frames").iterdir())


def test_a_folder_that_is_no_run_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/me.png").write_text("x")
    with pytest.raises(LabError, match="does not look like a run's folder"):
        RunFolder.create(tmp_path / "photos", resume=False, overwrite=True)
    (tmp_path / "link").symlink_to(a_run(tmp_path / "elsewhere").path)
    with pytest.raises(LabError, match="is a link"):
        RunFolder.create(tmp_path / "link", resume=False, overwrite=True)
    assert (tmp_path / "photos/me.png").exists()


def test_a_mistake_in_the_recipe_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = a_run(tmp_path / "runs/smoke")
    mistake = ("--set", "stages.click.tasks.template=clicks")
    assert cua_lab(monkeypatch, capsys, "smoke", *mistake).one_line
    assert (folder.path / "metrics.jsonl").read_text()


def test_what_lies_where_a_run_was_being_deleted_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (path / "checkpoint/one/step-000009").mkdir(parents=True)
    (path / "episodes.jsonl").write_text("{}\n")
    with RunFolder.create(path, resume=False).begin():
        assert not (path / "checkpoint").exists()
        assert not (path / "episodes.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "6"], "run.seed is 0, not 6"),
        (["--set", "stages.two.grpo.lr=0.01"], "stages.two.grpo.lr is 0.0002, not 0.01"),
        (["--recipe", "smoke"], "were|name is 'tiny', not 'smoke'"),
    ],
)
def test_a_run_is_not_gone_on_with_by_other_numbers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    """The printed command dropped --seed: click was from seed 5 and the game from seed 0."""
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "runs/mine")
    line = cua_lab(monkeypatch, capsys, "run", "--name", "mine", "--resume", *arguments).one_line
    assert any(part in line for part in says.split("|"))


def test_a_run_is_gone_on_with_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it was killed in its first warm-up, which was a dead end."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs/mine"

    def in_the_first_warm_up(name: str, where: Path, count: int) -> bool:
        return (name, where.name) == ("after append", "metrics.jsonl")

    assert not play(tiny_recipe(), path, Death(in_the_first_warm_up))
    ended = cua_lab(monkeypatch, capsys, "run", "--name", "mine", "--resume")
    assert ended.status == 0, ended.err
    assert (path / "summary.json").exists()


def test_where_two_recipes_differ_is_said_by_name() -> None:
    assert changes({"a": {"b": 1}, "c": [1]}, {"a": {"b": 2}, "c": [1]}) == ["a.b is 1, not 2"]
    assert changes(tiny_recipe(), tiny_recipe()) == []
