"""Where a policy clicks: screens with its sampled clicks as dots and the target as a frame.

Invariant: dots and frames are in pixels of the screen that is drawn under them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from cua_lab.desktop.geometry import Box


@dataclass(frozen=True, slots=True)
class Clicks:
    """One screen and what was clicked."""

    screen: Image
    points: Sequence[tuple[int, int]]
    """px"""
    box: Box
    """Of the target."""

    @property
    def inside(self) -> int:
        """How many points hit the target."""
        return sum(self.box.contains(x, y) for x, y in self.points)


def clicks_figure(rows: Mapping[str, Sequence[Clicks]]) -> Figure:
    """One row of screens for each name."""
    columns = max(map(len, rows.values()))
    with paper():
        figure = Picture(figsize=(10.5, 0.5 + 1.95 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for line, (name, shown) in zip(grid, rows.items(), strict=True):
            for axes, clicks in zip(line, shown, strict=False):
                _screen(axes, clicks)
            for axes in line[len(shown) :]:
                axes.axis("off")
            line[0].set_ylabel(name)
    return figure


def _screen(axes: Axes, clicks: Clicks) -> None:
    from matplotlib.patches import Rectangle

    left, top, right, bottom = clicks.box
    axes.imshow(clicks.screen, interpolation="nearest")
    frame = Rectangle(
        (left - 1.5, top - 1.5),
        right - left + 2,
        bottom - top + 2,
        fill=False,
        edgecolor=INK,
        linewidth=1.6,
    )
    axes.add_patch(frame)
    xs, ys = [x for x, _ in clicks.points], [y for _, y in clicks.points]
    axes.scatter(xs, ys, s=22, color=COLOURS[0], edgecolor="white", linewidth=0.9, zorder=3)
    axes.set_title(f"{clicks.inside} of {len(clicks.points)}", fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
