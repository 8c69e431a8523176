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

Invariant: a line is complete or absent (one `write` a line, flushed), and every whole file is
written beside its place and renamed into it, so an interrupted run never leaves half a file.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError

RECORD_FILES = ("metrics.jsonl", "episodes.jsonl")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths and writers of one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, *, resume: bool) -> "RunFolder":
        """Make the folder, or open it again; never writes over a run by accident."""
        folder = cls(path)
        started = (path / "progress.json").exists() or (path / "metrics.jsonl").exists()
        if resume and not started:
            raise LabError(
                f"nothing to resume in {path}: there is no progress.json; leave --resume out"
            )
        if started and not resume:
            raise LabError(
                f"{path} already holds a run; go on with --resume, choose another --name,"
                " or start over with --overwrite"
            )
        (path / "frames").mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    def warm_up(self, stage: str) -> Path:
        """The checkpoint of a stage after its warm-up."""
        return self.checkpoints / stage / "warm-up"

    def write(self, name: str, text: str) -> None:
        """Replace a whole file at once."""
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write(name, json.dumps(to_jsonable(value), indent=2, allow_nan=False) + "\n")

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl` or `episodes.jsonl`."""
        line = json.dumps(to_jsonable(record), allow_nan=False) + "\n"
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(line)

    def records(self, name: str) -> Iterator[dict[str, Any]]:
        """The complete lines of a record file; a torn last line is left out."""
        path = self.path / name
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8-sig").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the records of steps that a resumed run will do again."""
        for name in RECORD_FILES:
            if (self.path / name).exists():
                kept = [record for record in self.records(name) if wanted(record)]
                self.write(name, "".join(json.dumps(record) + "\n" for record in kept))

    def save_frame(self, name: str, png: bytes) -> str:
        """Keep a screenshot; returns its path relative to the folder, as records carry it."""
        relative = f"frames/{name}.png"
        (self.path / relative).write_bytes(png)
        return relative


def to_jsonable(value: Any) -> Any:
    """JSON values only: tuples become lists, and what is not finite becomes null (missing)."""
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        return to_jsonable(value.item())
    return value
