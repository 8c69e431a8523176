"""A run's folder, `runs/<name>/`: the only thing a report or a notebook needs to read.

    config.yaml     the recipe, resolved
    metrics.jsonl   one line a step
    episodes.jsonl  one line an episode
    frames/         screenshots of the few episodes that are shown
    summary.json    the figures, once the run has ended
    report.html     self-contained
    checkpoint/     one folder a stage: safetensors, optimizer, RNG, step
    progress.json   which stage and phase are done, for `--resume`
    ahead/          the next stage's warm-up while it is made (`run.warm_ahead`); then it is gone
    .lock           held by the process that runs here

Invariant: a line is complete or absent, and every whole file is written beside its place and
renamed into it (`cua_lab.files`), so an interrupted run never leaves half a file. Nothing is
deleted that is not a run's, and nothing while another process runs here.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab import files
from cua_lab.errors import LabError
from cua_lab.records import read_lines, to_json
from cua_lab.run.lock import FILE as LOCK
from cua_lab.run.lock import locked

RECORD_FILES = ("metrics.jsonl", "episodes.jsonl", "timings.jsonl")
STARTED = ("progress.json", "metrics.jsonl")
"""Either of them says that a run has begun."""
MARKS = (*STARTED, "config.yaml")
"""One of them says that a folder is a run's."""
PARTS = ("checkpoint", "ahead", "adapter", "model", "tensorboard", "frames")
"""The folders in it, which a new run starts without."""
RESULTS = ("summary.json", "viewer.json", "report.html", "data.json")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths and writers of one run."""

    path: Path
    resume: bool = True
    overwrite: bool = False
    """Delete an earlier run when this one begins, and not before its mistakes are found."""
    lock: int | None = None
    """The descriptor that holds the folder's lock; a child that writes here is given it."""

    @classmethod
    def create(cls, path: Path, *, resume: bool, overwrite: bool = False) -> RunFolder:
        """A folder to run in; one that holds a run is never written over by accident."""
        folder = cls(path, resume=resume, overwrite=overwrite)
        folder._check()
        (path / "frames").mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def begin(self) -> Iterator[RunFolder]:
        """Hold the folder for a run: alone in it, and without what a new run must not meet."""
        with locked(self.path) as handle:
            self._check()
            if (self.overwrite and not self.resume) or (not self.started and _leftovers(self.path)):
                clear(self.path)
            files.remove_partials(self.path)
            (self.path / "frames").mkdir(exist_ok=True)
            yield RunFolder(self.path, lock=handle)

    @property
    def started(self) -> bool:
        return any((self.path / name).exists() for name in STARTED)

    def _check(self) -> None:
        if self.resume and not self.started:
            raise LabError(
                f"nothing to resume in {self.path}: there is no progress.json; leave --resume out"
            )
        if self.started and not self.resume and not self.overwrite:
            raise LabError(
                f"{self.path} already holds a run; go on with --resume, choose another --name,"
                " or start over with --overwrite"
            )
        if self.overwrite and not self.resume:
            check_deletable(self.path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    def warm_up(self, stage: str) -> Path:
        """The checkpoint of a stage after its warm-up."""
        return self.checkpoints / stage / "warm-up"

    def write(self, name: str, text: str) -> None:
        """Replace a whole file at once."""
        files.write_text(self.path / name, text)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write(name, json.dumps(to_json(value), indent=2, allow_nan=False) + "\n")

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl` or `episodes.jsonl`."""
        files.append_line(self.path / name, json.dumps(to_json(record), allow_nan=False))

    def records(self, name: str) -> Iterator[dict[str, Any]]:
        """The complete lines of a record file; a torn last line is left out."""
        yield from read_lines(self.path / name)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the records of steps that a resumed run will do again."""
        for name in RECORD_FILES:
            if (self.path / name).exists():
                kept = [record for record in self.records(name) if wanted(record)]
                self.write(name, "".join(json.dumps(record) + "\n" for record in kept))

    def sizes(self) -> dict[str, int]:
        """How long each record file is, on the disk: what a resumed run goes back to."""
        found = {name: self.path / name for name in RECORD_FILES if (self.path / name).exists()}
        for path in found.values():
            files.flush(path)
        return {name: path.stat().st_size for name, path in found.items()}

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Drop every record that is later than `sizes`; one that is gone cannot be made up for."""
        for name in RECORD_FILES:
            path, size = self.path / name, sizes.get(name, 0)
            there = path.stat().st_size if path.exists() else 0
            if there < size:
                raise LabError(
                    f"{path} has {there:,} bytes of the {size:,} that the run had written: records"
                    " are lost; start over with --overwrite, or choose another --name"
                )
            files.cut(path, size)

    def save_frame(self, name: str, png: bytes) -> str:
        """Keep a screenshot; returns its path relative to the folder, as records carry it."""
        relative = f"frames/{name}.png"
        files.write_bytes(self.path / relative, png)
        return relative


def check_name(name: str, what: str = "--name") -> str:
    """A name that is a folder's own and no path: what is deleted or written goes by it."""
    wrong = (
        not name.strip()
        or name != name.strip()
        or name.startswith((".", "-"))
        or len(name.encode("utf-8", "replace")) > 100
        or any(c in "/\\" or unicodedata.category(c).startswith("C") for c in name)
    )
    if wrong:
        raise LabError(
            f"{what} {name!r} is no name for a run's folder: give up to 100 letters, digits, - or _"
            " and no path; runs are kept under runs/ where you start them"
        )
    return name


def check_deletable(path: Path) -> None:
    """Only a run's own folder, and no link to another, is ever deleted."""
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink():
        raise LabError(f"{path} is a link; it is not deleted. Remove it yourself, or use --name")
    names = {entry.name for entry in os.scandir(path)} if path.is_dir() else {path.name}
    is_run = names <= {*PARTS, *RECORD_FILES, *RESULTS, LOCK} or not names.isdisjoint(MARKS)
    if not path.is_dir() or not is_run:
        raise LabError(
            f"{path} does not look like a run's folder (none of {', '.join(MARKS)}), so it is not"
            " deleted; choose another --name"
        )


def _leftovers(path: Path) -> bool:
    """Whether a run that was being deleted left something behind."""
    names = {*PARTS, *RECORD_FILES, *RESULTS} - {"frames"}
    return any((path / name).exists() for name in names)


def clear(path: Path) -> None:
    """Delete what a run has left, and nothing else that lies there.

    What says that it has begun goes first and what says that it is a run's goes last: killed in the
    middle, it leaves a run that has not begun, and the next one clears the rest.
    """
    check_deletable(path)
    _unlink(path, STARTED)
    for name in PARTS:
        if not (path / name).is_symlink():
            files.remove_folder(path / name)
    _unlink(path, (*RECORD_FILES, *RESULTS, "config.yaml"))


def _unlink(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        files.fault_point("before unlink", folder / name)
        (folder / name).unlink(missing_ok=True)
        files.fault_point("after unlink", folder / name)
