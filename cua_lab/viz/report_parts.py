"""Pieces of the report: numbers in words, tables, figures; `static/report_parts.html.jinja` writes
them.

Invariant: `None` in a cell stands wherever a run did not measure something, and the page says so;
nothing here is markup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cua_lab.stats import Estimate
from cua_lab.viz.svg import BarChart, LineChart

Cell = str | None
"""`None`: not measured."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names the row; one without rows is shown as not measured."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Captioned:
    """A chart, `None` where nothing was measured, above its title and a hint how to read it."""

    title: str
    hint: str
    chart: LineChart | BarChart | None


def shown(estimate: Estimate | None) -> Cell:
    """`0.843 ± 0.023 (n = 256)`, as much of it as is known."""
    if estimate is None:
        return None
    error = f" ± {estimate.se:.3f}" if math.isfinite(estimate.se) else ""
    return f"{estimate.mean:.3f}{error}" + (f" (n = {estimate.n})" if estimate.n else "")


def number(value: float | None, unit: str = "", digits: int = 1, *, exponent: bool = False) -> Cell:
    """A number with its unit."""
    if value is None or not math.isfinite(value):
        return None
    text = f"{value:.1e}" if exponent else f"{value:,.{digits}f}"
    return f"{text} {unit}".strip()


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table from any sequences."""
    return Table(tuple(head), tuple(tuple(row) for row in rows))


def nested(head: str, facts: Mapping[str, Any], digits: int = 0) -> Table:
    """A two-column table of numbers, one level of nesting spelt out."""
    return table([head, ""], [[name, number(value, digits=digits)] for name, value in flat(facts)])


def flat(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """One level of nesting spelt out."""
    listed: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            listed += [(f"{name} {inner}", number) for inner, number in value.items()]
        else:
            listed.append((name.replace("_", " "), value))
    return listed
