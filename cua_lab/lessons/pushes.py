"""How hard an update pushes each token of an answer, under several treatments of the same tokens.

Invariant: heights are the numbers that were given, upwards is likelier; a token that carries no
loss under a treatment is drawn as a gap with a dot, never as a bar of height 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.errors import LabError
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper
from cua_lab.viz.visible import plot_text, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST = 13
"""Characters of a token that are shown."""


def push_figure(
    tokens: Sequence[str], strips: Mapping[str, Sequence[float | None]], *, limit: float = 1.25
) -> Figure:
    """One strip a treatment: a bar for each token, `None` where it carries no loss."""
    for name, values in strips.items():
        if len(values) != len(tokens):
            raise LabError(f"{name!r} has {len(values)} pushes but there are {len(tokens)} tokens")
    with paper():
        figure = Picture(figsize=(10.5, 1.5 + 0.95 * len(strips)), layout="constrained")
        panels = figure.subplots(len(strips), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, strips.items(), strict=True):
            _strip(axes, name, values, limit)
        panels[-1].set_xticks(range(len(tokens)), [shown(token) for token in tokens])
        panels[-1].tick_params("x", rotation=55, labelsize=8.5)
        for label in panels[-1].get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    return figure


def shown(token: str) -> str:
    """A token in a few characters, spaces and newlines visible."""
    text = visible(token)
    return plot_text(text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}…{text[-3:]}")


def _strip(axes: Axes, name: str, values: Sequence[float | None], limit: float) -> None:
    known = [(i, value) for i, value in enumerate(values) if value is not None]
    bars = axes.bar(
        [i for i, _ in known], [value for _, value in known], 0.72, edgecolor=INK, linewidth=0.7
    )
    for bar, (_, value) in zip(bars, known, strict=True):
        bar.set_facecolor(COLOURS[0] if value > 0 else COLOURS[1])
        bar.set_hatch("" if value > 0 else "////")
    absent = [i for i, value in enumerate(values) if value is None]
    axes.plot(absent, [0] * len(absent), "o", color=INK, markersize=4, markerfacecolor="white")
    axes.axhline(0, color=INK, linewidth=1)
    axes.set_ylim(-limit, limit)
    if limit < 3:
        axes.set_yticks([-1, 0, 1])
    axes.set_title(name, fontsize=10)
    axes.grid(False, axis="x")
