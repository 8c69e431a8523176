"""Where a call lands: the point on the picture that the model saw, and on the desktop itself.

Invariant: both marks come from `View.to_screen`, the same function that the tool uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from cua_lab.computer.coordinates import View

NEAR = 6
"""Desktop pixels around the landing place that the close-up shows, each way."""


def aim_figure(seen: Image, desktop: Image, view: View, at: tuple[float, float]) -> Figure:
    """Three panels: what the model saw, the desktop, and the landing place close up."""
    px, py = view.to_screen(*at)
    sx, sy = px * seen.width / desktop.width, py * seen.height / desktop.height
    with paper():
        figure = Picture(figsize=(10.5, 3.7), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _panel(left, seen, f"the model saw {seen.width}×{seen.height}")
        _panel(middle, desktop, f"the desktop has {desktop.width}×{desktop.height}")
        _panel(right, desktop, f"pixel ({px}, {py}), close up")
        for axes, point in ((left, (sx, sy)), (middle, (px, py))):
            for colour, width in (("white", 5), (INK, 2)):
                axes.plot(*point, "+", color=colour, markersize=20, markeredgewidth=width)
        left.set_xlabel(f"it said x={at[0]}, y={at[1]} in {view.space}")
        _close_up(right, px, py, desktop.width / seen.width, desktop.height / seen.height)
    return figure


def _panel(axes: Axes, image: Image, title: str) -> None:
    axes.imshow(image, interpolation="nearest")
    axes.set_title(title)
    axes.grid(False)


def _close_up(axes: Axes, px: int, py: int, across: float, down: float) -> None:
    """One desktop pixel, and the block of desktop pixels that one pixel of the view stands for."""
    from matplotlib.patches import Rectangle

    column, row = int(px / across), int(py / down)
    corner = (column * across - 0.5, row * down - 0.5)
    axes.add_patch(Rectangle(corner, across, down, fill=False, edgecolor=COLOURS[0], linewidth=2.5))
    axes.add_patch(
        Rectangle((px - 0.5, py - 0.5), 1, 1, facecolor=COLOURS[1], edgecolor=INK, hatch="//")
    )
    axes.set_xlim(px - NEAR - 0.5, px + NEAR + 0.5)
    axes.set_ylim(py + NEAR + 0.5, py - NEAR - 0.5)
    axes.set_xlabel("frame: what one pixel of the picture covers")
