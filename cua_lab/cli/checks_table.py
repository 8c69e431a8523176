"""Checks of a machine or a recipe as a table, for `doctor` and `miles`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cua_lab.checks import Check

COLOUR = {"ok": "green", "warn": "yellow", "fail": "red", "optional": "cyan"}


def show_checks(checks: Sequence[Check]) -> list[str]:
    """Print every check; the names of those that failed."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("", "check", "saw", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = f"[{COLOUR[check.status]}]{check.status}[/]"
        table.add_row(mark, check.name, escape(check.saw), escape(check.fix))
    Console().print(table)
    return [check.name for check in checks if check.status == "fail"]
