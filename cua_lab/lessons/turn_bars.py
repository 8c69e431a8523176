"""Turns as overlapping bars, and the one sequence that they become.

Invariant: bars have the lengths of the real ids; a bar says sampled exactly where the mask does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cua_lab.stitching.turn import Turn
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIVEN, SAMPLED = "#dfe3ea", COLOURS[1]


def turn_figure(turns: Sequence[Turn]) -> Picture:
    """A row for each request, then the stitched sequence of turns that extend each other."""
    rows = [
        [(0, len(t.prompt_ids), False), (len(t.prompt_ids), len(t.output_ids), True)] for t in turns
    ]
    spans = [(len(t.prompt_ids), len(t.output_ids)) for t in turns]
    end = sum(spans[-1])
    with paper():
        figure = Picture(figsize=(10.5, 0.9 + 0.42 * (len(turns) + 1)), layout="constrained")
        axes = figure.subplots()
        for row, parts in enumerate(rows):
            _row(axes, row, parts)
        _row(axes, len(turns), [(0, end, False), *((s, n, True) for s, n in spans)])
        names = [f"turn {k}: prompt + answer" for k in range(len(turns))]
        axes.set_yticks(range(len(turns) + 1), [*names, "stitched, mask 1 hatched"])
        axes.set_ylim(len(turns) + 0.6, -0.6)
        axes.set_xlim(0, end)
        axes.set_xlabel("ids")
        axes.grid(False, axis="y")
        figure.alt = (
            f"{len(turns)} bars, one a turn, each as long as its prompt and answer. Every bar"
            " begins with the whole bar above it and goes on: new scaffold and a screenshot, then"
            " the next answer. The last bar is the stitched sequence, each answer marked trained:"
            f" {sum(n for _, n in spans)} of {end} ids."
        )
    return figure


def _row(axes: Axes, row: int, parts: Sequence[tuple[int, int, bool]]) -> None:
    for start, length, sampled in parts:
        axes.barh(
            row, length, left=start, height=0.66, color=SAMPLED if sampled else GIVEN,
            hatch="//" if sampled else "", edgecolor=INK, linewidth=0.7,
        )  # fmt: skip
