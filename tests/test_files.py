"""A file or a folder is whole or not there, wherever the process dies or the disk is full."""

import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cua_lab import files


class Gone(BaseException):
    """The process is killed."""


def dies(at: str) -> AbstractContextManager[None]:
    """Killed at every fault point of this name."""

    def watch(name: str, path: Path) -> None:
        if name == at:
            raise Gone

    return files.watch_faults(watch)


def partials(folder: Path) -> list[Path]:
    return list(folder.rglob("*.partial"))


@pytest.mark.parametrize(
    ("at", "found"), [("before rename", "old"), ("after rename", "new"), ("nowhere", "new")]
)
def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path, at: str, found: str) -> None:
    path = files.write_text(tmp_path / "a.txt", "old")
    try:
        with dies(at):
            files.write_text(path, "new")
    except Gone:
        pass
    assert path.read_text() == found


def test_a_block_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = files.write_text(tmp_path / "a.txt", "old")
    with pytest.raises(TypeError), files.writing(path) as out:
        out.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.txt", "old")]


def test_files_and_folders_can_be_read_by_an_engine_of_another_user(tmp_path: Path) -> None:
    with files.writing_folder(tmp_path / "model") as folder:
        (folder / "inner").mkdir(mode=0o700)
        handle = os.open(folder / "inner/weights", os.O_CREAT | os.O_WRONLY, 0o600)
        os.close(handle)
    files.write_text(tmp_path / "a.txt", "")
    modes = [(tmp_path / name).stat().st_mode for name in ("a.txt", "model/inner/weights")]
    assert [stat.S_IMODE(mode) for mode in modes] == [0o644, 0o644]
    assert stat.S_IMODE((tmp_path / "model/inner").stat().st_mode) == 0o755


def test_a_link_is_followed_and_a_device_is_written_to(tmp_path: Path) -> None:
    real = files.write_text(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(real)
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert real.read_text() == "new"
    files.write_text("/dev/null", "nothing")
    assert Path("/dev/null").is_char_device()


def test_a_very_long_name_can_be_written(tmp_path: Path) -> None:
    assert files.write_text(tmp_path / ("x" * 250), "whole").read_text() == "whole"


@pytest.mark.parametrize(
    "at",
    ["before rename", "after rename", "before remove", "after remove", "nowhere"],
)
def test_a_folder_is_never_seen_half(tmp_path: Path, at: str) -> None:
    """Between the two renames it may be absent: then what it held lies beside it."""
    target = tmp_path / "step"
    for content in ("old", "new"):
        try:
            with (
                dies(at if content == "new" else "nowhere"),
                files.writing_folder(target) as folder,
            ):
                for name in ("a", "b"):
                    (folder / name).write_text(content)
        except Gone:
            pass
    held = {p.read_text() for p in target.iterdir()} if target.exists() else set()
    assert held in ({"old"}, {"new"}, set())
    assert len(list(target.iterdir())) == 2 if held else partials(tmp_path)
    files.remove_partials(tmp_path)
    assert not partials(tmp_path)


def test_a_folder_is_out_of_sight_before_its_first_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    with pytest.raises(Gone), dies("before remove"):
        files.remove_folder(tmp_path / "step")
    assert not (tmp_path / "step").exists()
    files.remove_folder(tmp_path / "absent")


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    files.append_line(path, "whole")
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    before, heard = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
        with pytest.raises(OSError, match="too large"):
            files.append_line(path, "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert path.read_text() == "whole\n"


def test_a_manifest_tells_what_is_missing_and_what_has_changed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/a").write_text("a")
    (tmp_path / "b").write_text("b")
    listed = files.digests(tmp_path)
    assert files.mismatch(tmp_path, listed) is None
    (tmp_path / "b").write_text("c")
    assert files.mismatch(tmp_path, listed) == "b is not what was written (1 bytes)"
    (tmp_path / "inner/a").unlink()
    assert files.mismatch(tmp_path, {"inner/a": listed["inner/a"]}) == "inner/a is missing"
