"""Files and folders that are whole or not there: the one place that renames, appends and removes.

    write_text, write_bytes, writing   a file:   written beside its place, flushed, renamed into it
    writing_folder, move_folder        a folder: the same
    append_line                        a line at the end of a record file; whole, or taken back
    remove_folder                      out of sight first, then gone
    digests, mismatch                  the manifest of a folder, and what no longer agrees with it

Invariant: whatever process is killed at whatever moment, a reader finds the old content or the new
one under a name, never half of either. Files are readable by everybody (0644): an engine may run
as another user. `fault_point` is called before and after each step that changes what a reader
finds, so that a test can end the process exactly there (`watch_faults`).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

FaultWatcher = Callable[[str, Path], None]
"""Called with what is about to happen or has happened, `before rename`, and the path it is for."""

_watcher: FaultWatcher | None = None
_counter = itertools.count()
PARTIAL = ".partial"
"""How the name of everything ends that is not finished, or already given up; it is hidden too."""


def fault_point(name: str, path: Path) -> None:
    """A moment at which a process may be killed; does nothing outside a test."""
    if _watcher is not None:
        _watcher(name, path)


@contextmanager
def watch_faults(watcher: FaultWatcher) -> Iterator[None]:
    """Call `watcher` at every fault point; what it raises is raised there."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


# ---------------------------------------------------------------- files


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes its name only when the block ends well.

    A link is followed; a device or a pipe (`/dev/stdout`) is written to as it is.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as out:
            yield out
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(target)
    try:
        with open(partial, "xb") as out:
            os.chmod(out.fileno(), 0o644)
            yield out
            out.flush()
            os.fsync(out.fileno())
        _rename(partial, target)
        flush(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            fault_point("before unlink", target)
            partial.unlink(missing_ok=True)
        raise


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Replace a whole file at once."""
    with writing(path) as out:
        out.write(content)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Replace a whole file at once, in UTF-8."""
    return write_bytes(path, text.encode("utf-8"))


def append_line(path: Path, line: str) -> None:
    """Add a line, which has no newline of its own; on a full disk the file is what it was."""
    fault_point("before append", path)
    rest = line.encode("utf-8") + b"\n"
    with path.open("ab", buffering=0) as file:  # a buffer would be written again on closing
        size = file.seek(0, os.SEEK_END)
        try:
            while rest:  # a disk that is nearly full takes a part
                rest = rest[file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
            raise
    fault_point("after append", path)


def cut(path: Path, size: int) -> None:
    """Shorten a file to its first `size` bytes; one that is not there counts as empty."""
    if not path.exists() or path.stat().st_size == size:
        return
    fault_point("before cut", path)
    os.truncate(path, size)
    flush(path)
    fault_point("after cut", path)


def flush(path: Path) -> None:
    """To the disk, not only to the system's cache: a rename may otherwise outlive its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------- folders


@contextmanager
def writing_folder(path: str | Path) -> Iterator[Path]:
    """An empty folder that takes its name, and another's place, only when the block ends well."""
    target = Path(path)
    partial = beside(target)
    partial.mkdir(parents=True)
    try:
        yield partial
        _flush_tree(partial)
        move_folder(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_folder(partial)
        raise


def move_folder(source: Path, target: Path) -> None:
    """Rename a folder, in place of one that is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    old = beside(target) if target.exists() else None
    if old is not None:
        _rename(target, old)
    _rename(source, target)
    flush(target.parent)
    if old is not None:
        remove_folder(old)


def remove_folder(path: Path) -> None:
    """Remove a folder, if it is there: first from sight, so that none is ever seen half."""
    if not path.exists():
        return
    if not path.name.endswith(PARTIAL):
        hidden = beside(path)
        _rename(path, hidden)
        path = hidden
    fault_point("before remove", path)
    shutil.rmtree(path)
    fault_point("after remove", path)


def remove_partials(folder: Path) -> None:
    """Remove what killed processes left half written or half removed, anywhere below a folder."""
    for path in sorted(folder.rglob(f".*{PARTIAL}")):
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)


def digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of each file below a folder, by its path relative to it."""
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def mismatch(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The first file of a folder that is not what `digests` found, in words; `None` without one."""
    for name, entry in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["bytes"] or digest(file) != entry["sha256"]:
            return f"{name} is not what was written ({entry['bytes']} bytes)"
    return None


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def beside(target: Path) -> Path:
    """A hidden name next to `target`, for what is not yet or no longer under its own."""
    return target.with_name(f".{target.name[:80]}.{os.getpid()}-{next(_counter)}{PARTIAL}")


def _rename(source: Path, target: Path) -> None:
    fault_point("before rename", target)
    os.replace(source, target)
    fault_point("after rename", target)


def _flush_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
            flush(path)
