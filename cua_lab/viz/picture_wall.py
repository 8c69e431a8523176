"""The picture wall: accepted samples above, rejected ones with their reasons below.

Invariant: a row that cannot be drawn (no image, no JSON) is on the wall too, as a grey card that
says so: those are the rows one most wants to see.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.dataset import spaces
from cua_lab.dataset.grounding import box_of, flatten_action, point_of
from cua_lab.dataset.quality import Verdict
from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb
from cua_lab.viz.picture import Picture
from cua_lab.viz.visible import plot_text, visible_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

GOOD, BAD, TARGET = "#1a7f37", "#c4432b", "#f0b429"
THUMB = 320
"""Pixels of a thumbnail's longer side."""


def picture_wall(
    accepted: Sequence[Verdict],
    rejected: Sequence[Verdict],
    *,
    root: str | Path = ".",
    columns: int = 4,
    rows: int = 2,
    space: str | None = None,
) -> Figure:
    """Up to `rows` rows of each kind. `space` is the file's, for rows that do not say."""
    good = list(accepted)[: columns * rows]
    bad = _spread(rejected, columns * rows)
    lines = -(-len(good) // columns) + -(-len(bad) // columns)
    figure = Picture(figsize=(3.1 * columns, 3.0 * max(lines, 1)), layout="constrained")
    grid = figure.subplots(max(lines, 1), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    first_bad = -(-len(good) // columns)
    for index, verdict in enumerate(good):
        _card(grid[index // columns][index % columns], verdict, root, space)
    for index, verdict in enumerate(bad):
        _card(grid[first_bad + index // columns][index % columns], verdict, root, space)
    return figure


def _spread(rejected: Sequence[Verdict], most: int) -> list[Verdict]:
    """Rejected rows so that every reason is seen before one is seen twice."""
    seen: dict[str, int] = {}
    keyed = []
    for order, verdict in enumerate(rejected):
        first = verdict.reasons[0].reason
        keyed.append((seen.get(first, 0), order))
        seen[first] = seen.get(first, 0) + 1
    return [rejected[order] for _, order in sorted(keyed)[:most]]


def _card(axes: Axes, verdict: Verdict, root: str | Path, space: str | None) -> None:
    colour = GOOD if verdict.accepted else BAD
    row: Mapping[str, Any] = flatten_action(verdict.row) if isinstance(verdict.row, dict) else {}
    picture = _picture(row, root)
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[])
    if picture is None:
        axes.set_facecolor("#d0d7de")
        axes.set(xlim=(0, 4), ylim=(3, 0), aspect="equal")
        axes.text(2, 1.5, "no picture", ha="center", va="center", color="#57606a")
    else:
        image, size = picture
        axes.imshow(image, extent=(0, size[0], size[1], 0))
        _mark(axes, row, size, space, colour)
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=3)
    axes.set_title(_short(row.get("instruction"), 2), fontsize=9, loc="left")
    reasons = ", ".join(reason.reason.replace("_", " ") for reason in verdict.reasons)
    action = str(row.get("action") or "no action")[:24]
    words = f"line {verdict.line}: {action}" if verdict.accepted else reasons
    axes.set_xlabel(_short(words, 2), fontsize=9, color=colour, loc="left")


def _picture(row: Mapping[str, Any], root: str | Path) -> tuple[Image, spaces.Size] | None:
    """A thumbnail and the real size; `None` where the file is no whole image."""
    name = row.get("screenshot")
    path = os.path.join(root, name) if isinstance(name, str) else ""
    try:
        small = open_rgb(path)
    except (LabError, ValueError):  # ValueError: a path with a null byte
        return None
    size = small.size
    small.thumbnail((THUMB, THUMB))
    return small, size


def _mark(
    axes: Axes, row: Mapping[str, Any], size: spaces.Size, space: str | None, colour: str
) -> None:
    """The target's box and the point, where the row has them in a known space."""
    from matplotlib.patches import Rectangle

    try:
        limit = spaces.scale(spaces.as_space(row.get("coordinate_space") or space), size)
    except LabError:
        return
    scale_x, scale_y = size[0] / limit[0], size[1] / limit[1]
    box, point = box_of(row.get("bbox")), point_of(row.get("coordinates"))
    if box is not None:
        corner = (box[0] * scale_x, box[1] * scale_y)
        width, height = (box[2] - box[0]) * scale_x, (box[3] - box[1]) * scale_y
        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=TARGET, linewidth=2))
    if point is not None:
        x, y = point[0] * scale_x, point[1] * scale_y
        style: dict[str, Any] = {"marker": "+", "markersize": 13, "clip_on": True}
        axes.plot([x], [y], color="white", markeredgewidth=4, **style)
        axes.plot([x], [y], color=colour, markeredgewidth=2, **style)
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0))


def _short(text: Any, lines: int) -> str:
    words = text if isinstance(text, str) and text.strip() else "(no instruction)"
    return "\n".join(textwrap.wrap(plot_text(visible_label(" ".join(words.split()))), 40)[:lines])
