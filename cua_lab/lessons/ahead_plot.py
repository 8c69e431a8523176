"""Training on answers of older weights: what plain averages, full and truncated weights give.

One choice between a few answers, each with its reward. The older policy mu answered, the newer one
pi shall learn, so the mean reward under pi is wanted and an answer counts w = pi / mu times, at
most `cap` times. Expectation and deviation of one answer's w r are exact sums over the answers.
Invariant: nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, MARKERS, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPS = tuple(0.5 * k for k in range(1, 17))


def estimate(
    old: Sequence[float], new: Sequence[float], rewards: Sequence[float], cap: float | None
) -> tuple[float, float]:
    """Mean and standard deviation of one answer's weighted reward; `None` weighs all alike."""
    weights = [1.0 if cap is None else min(p / q, cap) for p, q in zip(new, old, strict=True)]
    paid = [w * r for w, r in zip(weights, rewards, strict=True)]
    mean = math.fsum(q * x for q, x in zip(old, paid, strict=True))
    square = math.fsum(q * (x - mean) ** 2 for q, x in zip(old, paid, strict=True))
    return mean, math.sqrt(square)


def ahead_figure(old: Sequence[float], new: Sequence[float], rewards: Sequence[float]) -> Figure:
    """How far the estimate is off, and its deviation, over the cap."""
    wanted = math.fsum(p * r for p, r in zip(new, rewards, strict=True))
    found = [estimate(old, new, rewards, cap) for cap in CAPS]
    lines = {
        "off by": [abs(mean - wanted) for mean, _ in found],
        "deviation of one answer": [deviation for _, deviation in found],
    }
    plain = abs(estimate(old, new, rewards, None)[0] - wanted)
    with paper():
        figure = Picture(figsize=(8, 3.2), layout="constrained")
        axes = figure.subplots()
        for k, (name, values) in enumerate(lines.items()):
            axes.plot(CAPS, values, label=name, color=COLOURS[k], linestyle=DASHES[k],
                      marker=MARKERS[k], markevery=2)  # fmt: skip
        axes.axhline(plain, color=INK, linewidth=1.2, linestyle=(0, (2, 2)),
                     label="off by, without weights")  # fmt: skip
        axes.set_xlabel("cap of the weights")
        axes.set_ylabel("reward")
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.alt = (
        f"Over the cap of the weights from {CAPS[0]} to {CAPS[-1]}: the error falls from"
        f" {lines['off by'][0]:.2f} to {lines['off by'][-1]:.2f}, the deviation of one answer goes"
        f" from {found[0][1]:.2f} to {found[-1][1]:.2f}; without weights the error is {plain:.2f}."
    )
    return figure
