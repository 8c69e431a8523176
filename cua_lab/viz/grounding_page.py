"""The grounding report as one self-contained page: bars with intervals, then the misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cua_lab.viz.page import page_of

if TYPE_CHECKING:
    from cua_lab.dataset.evaluation import GroundingReport

MOST_MISSES = 100


def grounding_page(report: GroundingReport, title: str = "Grounding") -> str:
    """The page's HTML."""
    missed = [outcome for outcome in report.outcomes if not outcome.hit]
    groups = (
        ("By difficulty", report.by_difficulty),
        ("By size of the target", report.by_size),
        ("By type", report.by_type),
    )
    return page_of(
        "grounding.html.jinja",
        title=title,
        report=report,
        groups=groups,
        shown=missed[:MOST_MISSES],
        missed=len(missed),
    )
