"""A warm-up on one page: the loss on the left, what sampled answers are worth on the right.

Invariant: only what was measured is drawn, each look at the step where it was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, MARKERS, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TICKS = (0.125, 0.25, 0.5, 1, 2, 4, 8)


def warm_up_figure(
    losses: Sequence[float],
    looks: Mapping[str, Mapping[int, float]],
    *,
    chance: float | None = None,
) -> Figure:
    """`losses`: one a step, from step 1. `looks`: per name a share of 0..1 at some steps.
    `chance`: what blind answers reach, as a line."""
    with paper():
        figure = Picture(figsize=(10.5, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(range(1, len(losses) + 1), losses, color=COLOURS[0])
        left.set_yscale("log")
        reach = left.get_ylim()
        left.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        left.minorticks_off()
        left.set_ylim(reach)
        left.set_title("Loss")
        left.set_ylabel("nats an assistant token")
        for index, (name, shares) in enumerate(looks.items()):
            right.plot(
                list(shares), list(shares.values()), label=name, color=COLOURS[index],
                linestyle=DASHES[index], marker=MARKERS[index], markersize=5,
            )  # fmt: skip
        if chance is not None:
            right.axhline(chance, color=INK, linewidth=1, linestyle=(0, (1, 2)))
            right.annotate("blind", (0, chance), xytext=(2, 3), textcoords="offset points")
        right.set_ylim(-0.03, 1.03)
        right.set_title("Sampled answers")
        right.set_ylabel("share of answers")
        right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        for axes in (left, right):
            axes.set_xlabel("step")
    return figure
