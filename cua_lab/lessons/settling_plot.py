"""What waiting costs and what it buys: each action a mark, by its milliseconds.

Invariant: a stale frame is a cross and a true one a filled dot, so that the picture reads without
its colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cua_lab.bench.browser_bench import Settled

FINAL, STALE = COLOURS[0], COLOURS[1]


def settling_figure(pages: Mapping[str, Sequence[Settled]]) -> Figure:
    """A panel for each page, a row for each way to wait."""
    longest = max(ms for ways in pages.values() for way in ways for ms in way.each_ms)
    rows = max(len(ways) for ways in pages.values())
    with paper():
        figure = Picture(figsize=(10.5, 1.3 + 0.62 * rows))
        axes = figure.subplots(1, len(pages), sharey=True, squeeze=False)[0]
        for panel, (page, ways) in zip(axes, pages.items(), strict=True):
            _panel(panel, page, ways, longest)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figure.set_layout_engine("constrained")
    return figure


def _panel(axes: Axes, page: str, ways: Sequence[Settled], longest: float) -> None:
    axes.set_title(page)
    axes.set_xlim(0, longest * 1.22)
    axes.set_ylim(len(ways) - 0.5, -0.5)
    axes.set_yticks(range(len(ways)), [way.name for way in ways])
    axes.set_xlabel("ms from the call to the screenshot")
    for row, way in enumerate(ways):
        marks = list(zip(way.each_ms, way.each_stale, strict=True))
        final = [ms for ms, stale in marks if not stale]
        stale = [ms for ms, stale in marks if stale]
        named = {"final": "the screen at rest", "stale": "a stale frame"} if row == 0 else {}
        axes.plot(final, [row] * len(final), "o", color=FINAL, alpha=0.6, label=named.get("final"))
        axes.plot(stale, [row] * len(stale), "x", color=STALE, mew=2, label=named.get("stale"))
        axes.annotate(
            f"{way.ms:.0f} ms, {way.stale} of {way.actions} stale",
            (way.ms, row - 0.27),
            ha="left" if way.ms < longest * 0.6 else "right",
            fontsize=8.5,
        )
