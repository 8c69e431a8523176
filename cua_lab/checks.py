"""A `Check` is one line of a report on a machine or a recipe: looked at, seen, and the fix.

Invariant: a check that is not `ok` always carries a fix. Only `fail` stops anything from running;
`warn` costs speed or safety, `optional` is a part that only some lessons need.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "optional"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: Status
    saw: str
    fix: str = ""
    """What to do about it; empty only where the status is `ok`."""

    def __post_init__(self) -> None:
        if self.status != "ok" and not self.fix:
            raise ValueError(f"check {self.name!r} is {self.status} but says no fix")


def installed_version(name: str) -> str | None:
    """The version of an installed distribution; `None` where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
