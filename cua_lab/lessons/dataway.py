"""The way of the data, drawn: the loop of an episode above, what training takes from it below.

Invariant: every box is a room of the package and every arrow says what it carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILLS = {"play": "#e4ecfb", "learn": "#fdeadb", "keep": "#eef0ee"}


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    title: str
    room: str
    kind: str
    width: float = 1.9
    height: float = 0.92


BOXES = {
    "tasks": _Box(0.0, 2.6, "tasks", "cua_lab.tasks", "keep"),
    "agent": _Box(2.9, 2.6, "agent", "cua_lab.play.agent, HUD", "play"),
    "tool": _Box(5.8, 2.6, "computer tool", "cua_lab.computer", "play"),
    "desktop": _Box(8.7, 2.6, "desktop", "cua_lab.desktop", "play"),
    "shim": _Box(2.9, 0.6, "shim", "cua_lab.serving.shim", "play"),
    "engine": _Box(5.8, 0.6, "engine", "embedded, sglang, vLLM", "play"),
    "grader": _Box(8.7, 0.6, "grader", "cua_lab.envs", "keep"),
    "stitch": _Box(2.9, -1.4, "stitch", "cua_lab.rollout", "learn"),
    "train": _Box(5.8, -1.4, "GRPO", "cua_lab.training", "learn"),
    "viz": _Box(0.0, -1.4, "pictures", "cua_lab.viz", "keep"),
}


def data_way() -> Figure:
    """The picture; its text is in the notebook's prose too."""
    with paper():
        figure = Picture(figsize=(10.5, 5.1))
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.set_xlim(-0.25, 10.9)
        axes.set_ylim(-1.75, 3.85)
        axes.axis("off")
        for box in BOXES.values():
            _draw(axes, box)
        _arrows(axes)
    return figure


def _draw(axes: Axes, box: _Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (box.x, box.y), box.width, box.height, boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=FILLS[box.kind], edgecolor=INK, linewidth=1.2,
        )
    )  # fmt: skip
    middle = box.x + box.width / 2
    axes.text(
        middle, box.y + 0.56, box.title, ha="center", va="center", fontsize=12.5, weight="bold"
    )
    axes.text(middle, box.y + 0.25, box.room, ha="center", va="center", fontsize=8)


def _arrows(axes: Axes) -> None:
    _across(axes, "tasks", "agent", "prompt", side="right")
    _across(axes, "agent", "tool", "call (JSON)", side="right", up=0.2)
    _across(axes, "agent", "tool", "screenshot", side="left", up=-0.2)
    _across(axes, "tool", "desktop", "keys, clicks", side="right", up=0.2)
    _across(axes, "tool", "desktop", "pixels (RFB)", side="left", up=-0.2)
    _across(axes, "shim", "engine", "chat + flags", side="right", up=0.2)
    _across(axes, "shim", "engine", "ids, logprobs", side="left", up=-0.2)
    _across(axes, "stitch", "train", "samples", side="right")
    _across(axes, "viz", "stitch", "tokens, masks", side="left")
    _down(axes, "agent", "shim", "messages, images", offset=-0.3)
    _up(axes, "shim", "agent", "text, calls", offset=0.3)
    _down(axes, "desktop", "grader", "the app's state", offset=0.0)
    _down(axes, "shim", "stitch", "turns", offset=0.0)
    _up(axes, "train", "engine", "new weights", offset=0.0, colour=COLOURS[1])
    down, level = BOXES["grader"].x + 0.95, BOXES["train"].y + 0.46
    axes.plot([down, down], [BOXES["grader"].y, level], color=INK, linewidth=1.6)
    axes.annotate("", (BOXES["train"].x + 1.9, level), (down, level), arrowprops=_style(INK))
    axes.text(
        (BOXES["train"].x + 1.9 + down) / 2, level + 0.09, "reward", fontsize=8.5, ha="center"
    )


def _style(colour: str) -> dict[str, Any]:
    return {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "mutation_scale": 14}


def _across(axes: Axes, a: str, b: str, label: str, *, side: str, up: float = 0.0) -> None:
    start, end = BOXES[a].x + BOXES[a].width, BOXES[b].x
    y = BOXES[a].y + BOXES[a].height / 2 + up
    tail, head = (start, end) if side == "right" else (end, start)
    axes.annotate("", (head, y), (tail, y), arrowprops=_style(INK))
    above = up >= 0
    axes.text((start + end) / 2, y + (0.09 if above else -0.09), label, fontsize=8.5, ha="center",
              va="bottom" if above else "top")  # fmt: skip


def _down(axes: Axes, a: str, b: str, label: str, *, offset: float, colour: str = INK) -> None:
    x = BOXES[a].x + BOXES[a].width / 2 + offset
    top, bottom = BOXES[a].y, BOXES[b].y + BOXES[b].height
    axes.annotate("", (x, bottom), (x, top), arrowprops=_style(colour))
    on_left = offset < 0
    axes.text(x + (-0.1 if on_left else 0.1), (top + bottom) / 2, label, fontsize=8.5, va="center",
              ha="right" if on_left else "left")  # fmt: skip


def _up(axes: Axes, a: str, b: str, label: str, *, offset: float, colour: str = INK) -> None:
    x = BOXES[a].x + BOXES[a].width / 2 + offset
    low, high = BOXES[a].y + BOXES[a].height, BOXES[b].y
    axes.annotate("", (x, high), (x, low), arrowprops=_style(colour))
    axes.text(x + 0.1, (low + high) / 2, label, fontsize=8.5, va="center", ha="left")
