"""The filter's counts as one picture: how many rows each reason cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cua_lab.files import writing
from cua_lab.viz.picture import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cua_lab.dataset.quality import QualityReport


def write_reasons(report: QualityReport) -> Path:
    """The picture beside the report's own files: `report.png`."""
    path = Path(report.files["report"]).with_suffix(".png")
    with writing(path) as out:
        reasons_figure(report).savefig(out, format="png", dpi=120, bbox_inches="tight")
    return path


def reasons_figure(report: QualityReport) -> Figure:
    """Horizontal bars, the most frequent reason on top, with counts and shares."""
    names = list(report.reasons)[::-1]
    counts = [report.reasons[name] for name in names]
    figure = Picture(figsize=(7.5, 1.2 + 0.32 * max(len(names), 1)))
    axes = figure.subplots()
    bars = axes.barh([name.replace("_", " ") for name in names], counts, color="#c4432b")
    total = max(report.rows, 1)
    axes.bar_label(bars, [f" {count:,}  ({count / total:.1%})" for count in counts], fontsize=9)
    axes.set_title(
        f"{report.rows:,} rows: {report.accepted:,} accepted, {report.rejected:,} rejected",
        loc="left",
        fontsize=11,
    )
    axes.set_xlabel("rejected rows with this reason (a row may have several)", fontsize=9)
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if not names:
        axes.set_yticks([])
    return figure
