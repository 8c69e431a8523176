"""What runs where: the laptop's one process above, the same episode under Miles below.

Invariant: boxes in one column do the same work; a dash-dotted box is another program than the one
above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, PAPER, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAME, OTHER = "#e4ecfb", "#fdeadb"
WIDTH, HEIGHT, STEP = 2.0, 1.0, 3.15
LAPTOP, MILES = 2.95, 0.0
"""The lanes' y."""


@dataclass(frozen=True, slots=True)
class Place:
    """One box."""

    title: str
    detail: str
    same: bool = True
    """The code is the laptop's."""


LANES = {
    LAPTOP: (
        Place("desktop, grader", "a loopback port"),
        Place("episode", "agent, tool, shim, stitch"),
        Place("engine", "embedded, on the CPU"),
        Place("trainer", "GRPO, one process"),
    ),
    MILES: (
        Place("desktop, grader", "HUD env in a sandbox"),
        Place("episode", "agent, tool, shim, stitch"),
        Place("engines", "a router and 8 sglang", same=False),
        Place("trainer", "FSDP on 8 GPUs", same=False),
    ),
}


def placement() -> Figure:
    """The picture; the table below it in the lesson says the same in words."""
    with paper():
        figure = Picture(figsize=(11, 5.2))
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.set_xlim(-0.5, 12.0)
        axes.set_ylim(-1.2, 4.6)
        axes.axis("off")
        _frame(axes, 0, 3, LAPTOP, "the laptop: one process")
        _frame(axes, 0, 0, MILES, "a sandbox an episode")
        _frame(axes, 1, 3, MILES, "a node with 8 GPUs: Ray starts Miles, Miles calls the plug-in")
        for y, places in LANES.items():
            for column, place in enumerate(places):
                _box(axes, column, y, place)
            _arrows(axes, y, "shared" if y == LAPTOP else "copied")
    return figure


def _frame(axes: Axes, first: int, last: int, y: float, label: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, width = first * STEP - 0.28, (last - first) * STEP + WIDTH + 0.56
    axes.add_patch(
        FancyBboxPatch(
            (x, y - 1.05), width, HEIGHT + 1.55, boxstyle="round,pad=0,rounding_size=0.15",
            facecolor="none", edgecolor="#6b6f76", linewidth=1.1, linestyle=(0, (5, 2)),
        )
    )  # fmt: skip
    axes.text(x + 0.14, y + HEIGHT + 0.24, label, fontsize=9.5, style="italic", va="center")


def _box(axes: Axes, column: int, y: float, place: Place) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (column * STEP, y), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=SAME if place.same else OTHER, edgecolor=INK if place.same else COLOURS[1],
            linewidth=1.2 if place.same else 2.2, linestyle="-" if place.same else "-.",
        )
    )  # fmt: skip
    middle = column * STEP + WIDTH / 2
    axes.text(middle, y + 0.63, place.title, ha="center", va="center", fontsize=12, weight="bold")
    axes.text(middle, y + 0.29, place.detail, ha="center", va="center", fontsize=8)


def _arrows(axes: Axes, y: float, weights: str) -> None:
    _across(axes, 1, 0, y + 0.7, "keys, clicks", above=True)
    _across(axes, 0, 1, y + 0.3, "pixels (RFB)", above=False)
    _across(axes, 1, 2, y + 0.7, "chat, images", above=True)
    _across(axes, 2, 1, y + 0.3, "ids, logprobs", above=False)
    _across(axes, 3, 2, y + 0.5, f"weights,\n{weights}", above=True)
    start, end, low = STEP + WIDTH / 2, 3 * STEP + WIDTH / 2, y - 0.55
    axes.plot([start, start, end], [y, low, low], color=INK, linewidth=1.6)
    axes.annotate("", (end, y), (end, low), arrowprops=_style())
    said = "samples: ids, mask, log-probabilities, pixels, reward"
    axes.text((start + end) / 2, low - 0.08, said, fontsize=8.5, ha="center", va="top")


def _across(axes: Axes, a: int, b: int, y: float, label: str, *, above: bool) -> None:
    tail = a * STEP + (WIDTH if b > a else 0.0)
    head = b * STEP + (0.0 if b > a else WIDTH)
    axes.annotate("", (head, y), (tail, y), arrowprops=_style())
    axes.text(
        (tail + head) / 2, y + (0.08 if above else -0.08), label, fontsize=8, ha="center",
        va="bottom" if above else "top", bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
    )  # fmt: skip


def _style() -> dict[str, object]:
    return {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "mutation_scale": 13}
