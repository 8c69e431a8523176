"""Concept pictures: a row of boxes, and what travels between them.

    chain([Box("agent", "HUD"), Box("shim", "httpx")], there=["messages"], back=["text, calls"])

Invariant: each arrow says what it carries; what goes back is drawn below what goes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAIN, MARKED = "#e4ecfb", "#fdeadb"
STEP, WIDTH, HEIGHT = 3.3, 1.9, 1.0


@dataclass(frozen=True, slots=True)
class Box:
    """One part."""

    title: str
    note: str
    marked: bool = False
    """The one that the lesson is about."""


def chain(
    boxes: Sequence[Box], *, there: Sequence[str], back: Sequence[str] = (), alt: str
) -> Picture:
    """The boxes from left to right; an empty label draws no arrow."""
    with paper():
        figure = Picture(figsize=(10.5, 2.1))
        figure.alt = alt
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.set_xlim(-0.15, STEP * (len(boxes) - 1) + WIDTH + 0.15)
        axes.set_ylim(-0.55, 1.55)
        axes.axis("off")
        for place, box in enumerate(boxes):
            _box(axes, place * STEP, box)
        for place in range(len(boxes) - 1):
            both = place < len(there) and place < len(back) and there[place] and back[place]
            shift = 0.22 if both else 0.0
            if place < len(there) and there[place]:
                _arrow(axes, place, there[place], 0.5 + shift, right=True)
            if place < len(back) and back[place]:
                _arrow(axes, place, back[place], 0.5 - shift, right=False)
    return figure


def _box(axes: Axes, x: float, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x, 0), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12", linewidth=1.2,
            facecolor=MARKED if box.marked else PLAIN, edgecolor=INK,
        )
    )  # fmt: skip
    axes.text(x + WIDTH / 2, 0.66, box.title, ha="center", va="center", fontsize=11, weight="bold")
    axes.text(x + WIDTH / 2, 0.27, box.note, ha="center", va="center", fontsize=7.5)


def _arrow(axes: Axes, place: int, label: str, y: float, *, right: bool) -> None:
    tail, head = place * STEP + WIDTH + 0.04, (place + 1) * STEP - 0.04
    middle = (tail + head) / 2
    if not right:
        tail, head = head, tail
    style = {"arrowstyle": "-|>", "color": INK if right else COLOURS[1], "linewidth": 1.5}
    axes.annotate("", (head, y), (tail, y), arrowprops=style)
    axes.text(
        middle, y + (0.09 if right else -0.09), label, fontsize=7.5, ha="center",
        va="bottom" if right else "top",
    )  # fmt: skip
