"""The grounding reward as a landscape over the screen: what a click at each place would pay.

Invariant: the picture shows values of `grounding_reward` itself on a grid, no formula of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cua_lab.training.rewards import GroundingReward, GroundingWeights, grounding_reward
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import PAPER, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]


def landscape(
    box: Box,
    *,
    target: tuple[float, float] | None = None,
    side: int = 201,
    weights: GroundingWeights | None = None,
) -> GroundingReward:
    """The reward's pieces on a grid of clicks (side, side), rows from top to bottom; shares of the
    screen throughout."""
    axis = np.linspace(0.0, 1.0, side)
    points = np.stack(np.meshgrid(axis, axis), axis=-1)  # (side, side, 2)
    return grounding_reward(points, target, box, weights=weights)


def landscape_figure(
    box: Box,
    *,
    target: tuple[float, float] | None = None,
    weights: GroundingWeights | None = None,
) -> Figure:
    """The total and its three pieces, with the target's box drawn in."""
    from matplotlib.patches import Rectangle

    reward = landscape(box, target=target, weights=weights)
    panels = {
        f"total: {reward.total.min():.2f} to {reward.total.max():.2f}": reward.total,
        "position": reward.position,
        "containment": reward.containment,
        "exact": reward.exact,
    }
    with paper():
        figure = Picture(figsize=(11, 3), layout="constrained")
        for axes, (title, values) in zip(figure.subplots(1, 4), panels.items(), strict=True):
            image = axes.imshow(values, extent=(0, 1, 1, 0), cmap="viridis")
            corner, size = box[:2], (box[2] - box[0], box[3] - box[1])
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=PAPER, linewidth=1.2))
            axes.set_title(title, loc="left")
            axes.grid(False)
            axes.set_xticks([0, 0.5, 1])
            axes.set_yticks([0, 0.5, 1])
            figure.colorbar(image, ax=axes, shrink=0.8)
    return figure
