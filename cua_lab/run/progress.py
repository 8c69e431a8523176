"""Where a run stands: which phases of which stage are done, and what they measured.

Invariant: `progress.json` is written after each phase and each checkpoint, whole or not at all, and
holds all that a resumed run needs beside the checkpoints and record files: how long those files
were at that moment, too, so that a resumed run takes back whatever came later and counts nothing
twice. A checkpoint carries the same record: where the two disagree, because the process was killed
between them or the newest checkpoint is damaged, the checkpoint that is loaded is right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError
from cua_lab.records import FORMAT, check_format, read_estimate
from cua_lab.run.folder import RunFolder
from cua_lab.run.measure import Measured
from cua_lab.run.tally import Tally

FILE = "progress.json"


@dataclass(slots=True)
class StageProgress:
    """One stage."""

    warm: bool = False
    """The warm-up is saved."""
    step: int = 0
    """GRPO steps up to the last checkpoint."""
    before: Measured | None = None
    after: Measured | None = None
    ablations: dict[str, Measured] = field(default_factory=dict)
    fallback: dict[str, Any] | None = None
    """The whole record as GRPO began: where to go back to if no checkpoint can be read."""

    def record(self) -> dict[str, Any]:
        return {
            "warm": self.warm,
            "step": self.step,
            "before": self.before.record() if self.before else None,
            "after": self.after.record() if self.after else None,
            "ablations": {name: result.record() for name, result in self.ablations.items()},
            "fallback": self.fallback,
        }

    @classmethod
    def read(cls, record: dict[str, Any]) -> StageProgress:
        return cls(
            warm=record["warm"],
            step=record["step"],
            before=_measured(record["before"]),
            after=_measured(record["after"]),
            ablations={
                name: measured
                for name, result in record["ablations"].items()
                if (measured := _measured(result)) is not None
            },
            fallback=record.get("fallback"),
        )


@dataclass(slots=True)
class Progress:
    """The whole run."""

    stages: dict[str, StageProgress] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    """Wall time of earlier sessions."""
    sizes: dict[str, int] | None = None
    """Bytes of each record file as this was saved; `None` in a run of an older version."""
    saved: dict[str, Any] | None = None
    """The record on the disk."""

    def stage(self, name: str) -> StageProgress:
        return self.stages.setdefault(name, StageProgress())

    def record(self, folder: RunFolder) -> dict[str, Any]:
        """As JSON, with the record files flushed to the disk as far as they are counted."""
        self.sizes = folder.sizes()
        return {
            "format": FORMAT,
            "stages": {name: stage.record() for name, stage in self.stages.items()},
            "tally": self.tally.record(),
            "seconds": self.seconds,
            "records": self.sizes,
        }

    def save(self, folder: RunFolder) -> None:
        """All that is done until now is done."""
        self.saved = self.record(folder)
        folder.write_json(FILE, self.saved)

    def save_seconds(self, folder: RunFolder, seconds: float) -> None:
        """Of a run that ends in the middle of something: what it had saved, and the time."""
        if self.saved is not None:
            folder.write_json(FILE, {**self.saved, "seconds": seconds})

    @classmethod
    def load(cls, folder: RunFolder) -> Progress:
        """What an earlier session left; a new one where it left nothing."""
        path = folder.home / FILE
        if not path.exists():
            return cls()
        try:
            record = json.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise _unreadable(path, error) from error
        return cls.read(record, path)

    @classmethod
    def read(cls, record: Any, where: Path) -> Progress:
        """From its record, in `progress.json` or in a checkpoint."""
        try:
            check_format(record, where)
            stages = {name: StageProgress.read(s) for name, s in record["stages"].items()}
            tally, seconds = Tally.read(record["tally"]), record["seconds"]
            return cls(stages, tally, seconds, record.get("records"), record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(where, error) from error


def _unreadable(path: Path, error: Exception) -> LabError:
    return LabError(f"{path} cannot be read ({error}); start over with --overwrite")


def _measured(record: dict[str, Any] | None) -> Measured | None:
    if record is None:
        return None
    plain = ("direction_shares", "by_variant")
    names = [f.name for f in fields(Measured) if f.name not in plain]
    variants = record.get("by_variant")
    return Measured(
        **{name: read_estimate(record.get(name)) for name in names},
        direction_shares=record["direction_shares"],
        by_variant=variants
        and {name: known for name, found in variants.items() if (known := read_estimate(found))},
    )
