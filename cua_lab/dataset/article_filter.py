"""The article's quality filter, rebuilt from its description, for the lesson only.

What it gets wrong, each shown by `compare`:
- it unpacks `coordinates` of every sample, so one without them stops the whole run;
- it takes an empty point for a fault, so typing, keys, waiting and finishing are thrown away;
- it is given `min_resolution` and `max_elements` and never looks at either;
- it reads every number as 0-1, so a file in pixels is rejected whole, without a word why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.dataset.data_checks import Rules
from cua_lab.dataset.quality import judge_rows

VALID_ACTIONS = ("click", "double_click", "type", "scroll", "key", "drag", "wait", "finish")


@dataclass(frozen=True, slots=True)
class ArticleFilter:
    """Yes or no, and no reason."""

    min_resolution: tuple[int, int] = (1024, 768)
    max_elements: int = 200

    def is_valid(self, sample: Mapping[str, Any]) -> bool:
        """The article's verdict. Raises on a sample without coordinates: that is the point."""
        if not sample.get("screenshot") or not sample.get("instruction"):
            return False
        if sample.get("action") not in VALID_ACTIONS:
            return False
        coordinates = sample["coordinates"]
        if len(coordinates) != 2:
            return False
        x, y = coordinates
        return bool(0 <= x <= 1 and 0 <= y <= 1)


@dataclass(frozen=True, slots=True)
class Compared:
    """One row, judged by both."""

    row: Mapping[str, Any]
    article: str
    """`accepts`, `rejects`, or `crashes: KeyError`."""
    ours: str
    """`accepts`, or the reasons."""


def compare(
    rows: Iterable[Mapping[str, Any]], rules: Rules | None = None, *, root: str | Path = "."
) -> list[Compared]:
    """Both verdicts for each row; the lesson's table."""
    kept = list(rows)
    verdicts = judge_rows(kept, rules, root=root)
    return [
        Compared(
            row,
            _article_says(row),
            ", ".join(reason.reason for reason in verdict.reasons) or "accepts",
        )
        for row, verdict in zip(kept, verdicts, strict=True)
    ]


def _article_says(row: Mapping[str, Any]) -> str:
    try:
        return "accepts" if ArticleFilter().is_valid(row) else "rejects"
    except (KeyError, TypeError, ValueError) as error:  # shown, not hidden: it is the lesson
        return f"crashes: {type(error).__name__}"
