"""Where a run stands: which phases of which stage are done, and what they measured.

Invariant: `progress.json` is written after each phase and each checkpoint, whole or not at all, and
holds all that a resumed run needs beside the checkpoints and record files.
"""

import json
import os
import sys
from dataclasses import dataclass, field, fields
from typing import Any

from cua_lab.errors import LabError
from cua_lab.run.folder import RunFolder
from cua_lab.run.measure import Measured
from cua_lab.run.tally import Tally
from cua_lab.stats import Estimate

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

    def record(self) -> dict[str, Any]:
        return {
            "warm": self.warm,
            "step": self.step,
            "before": self.before.record() if self.before else None,
            "after": self.after.record() if self.after else None,
            "ablations": {name: result.record() for name, result in self.ablations.items()},
        }

    @classmethod
    def read(cls, record: dict[str, Any]) -> "StageProgress":
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
        )


@dataclass(slots=True)
class Progress:
    """The whole run."""

    stages: dict[str, StageProgress] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    """Wall time of earlier sittings."""

    def stage(self, name: str) -> StageProgress:
        return self.stages.setdefault(name, StageProgress())

    def save(self, folder: RunFolder) -> None:
        folder.write_json(
            FILE,
            {
                "stages": {name: stage.record() for name, stage in self.stages.items()},
                "tally": self.tally.record(),
                "seconds": self.seconds,
            },
        )

    @classmethod
    def load(cls, folder: RunFolder) -> "Progress":
        """What an earlier sitting left; a new one where it left nothing."""
        path = folder.path / FILE
        if not path.exists():
            return cls()
        try:
            record = json.loads(path.read_text(encoding="utf-8-sig"))
            stages = {name: StageProgress.read(s) for name, s in record["stages"].items()}
            return cls(stages, Tally(**record["tally"]), record["seconds"])
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(
                f"{path} cannot be read ({error}); start over with --overwrite"
            ) from error


def _measured(record: dict[str, Any] | None) -> Measured | None:
    if record is None:
        return None
    plain = ("direction_shares", "by_variant")
    estimates = {f.name: _estimate(record[f.name]) for f in fields(Measured) if f.name not in plain}
    variants = record.get("by_variant")
    return Measured(
        **estimates,
        direction_shares=record["direction_shares"],
        by_variant=variants and {name: _known(found) for name, found in variants.items()},
    )


def _estimate(record: dict[str, Any] | None) -> Estimate | None:
    return None if record is None else _known(record)


def _known(record: dict[str, Any]) -> Estimate:
    """A standard error of null is NaN: one episode has none."""
    se = record["se"]
    return Estimate(record["mean"], float("nan") if se is None else se, record["n"])


def bar(what: str, total: int, unit: str, *, initial: int = 0) -> Any:
    """A progress bar with the time left; silent where TQDM_DISABLE says so."""
    from tqdm.auto import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0  # a log file needs no animation
    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        unit=unit,
        mininterval=interval,
        dynamic_ncols=True,
        disable=os.environ.get("TQDM_DISABLE") == "1",  # tqdm's notebook bar does not ask
    )
