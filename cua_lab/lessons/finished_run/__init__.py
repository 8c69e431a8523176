"""A finished run that comes with the package, so that a lesson always has one to read.

    python -m cua_lab.lessons.finished_run pack runs/laptop

`pack` copies of a run's folder what a lesson reads: every step, the summary, the viewer's episode,
the frames of a few episodes; of the other episodes what was done and graded, and not what was said
or looked at. Invariant: a packed run is a run's folder like any other, read by
`cua_lab.viz.read_run`, and every number in it is the run's own.
"""

from __future__ import annotations

import os
from pathlib import Path

from cua_lab.errors import LabError
from cua_lab.viz.runfiles import Run, read_run

FOLDER = Path(__file__).parent
ONLY_PACKED = "CUA_LAB_LESSON_RUN"
"""Set to `packed` where outputs are stored and checked: everybody reads the same run there."""


def packed_runs() -> tuple[str, ...]:
    """The names of the runs that come with the package."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/summary.json")))


def runs_folder() -> Path:
    """Where `make run` leaves runs, also for a kernel that was started in `notebooks`."""
    here = Path.cwd()
    inside = here.name == "notebooks" and (here.parent / "pyproject.toml").exists()
    return (here.parent if inside else here) / "runs"


def finished_run(name: str = "laptop", *, runs: str | Path | None = None) -> Run:
    """The run `name` where one's own stands under `runs`, finished; else the packed one."""
    own = Path(runs_folder() if runs is None else runs, name)
    if os.environ.get(ONLY_PACKED) != "packed" and (own / "summary.json").exists():
        return read_run(own)
    if name not in packed_runs():
        raise LabError(
            f"no finished run {name!r}: none stands in {own}, and the package has"
            f" {', '.join(packed_runs()) or 'none'}; make one with `cua-lab run --recipe {name}`"
        )
    return read_run(FOLDER / name)


def where(run: Run) -> str:
    """Whose run it is, in words."""
    return "the run of the package" if run.path.parent == FOLDER else f"your own run, {run.path}"
