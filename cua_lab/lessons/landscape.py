"""Rewards of a click as landscapes over the screen: what a click at each place would pay.

Invariant: the pictures show values of the package's own rewards on a grid, no formula of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cua_lab.envs.lab.grading import click_distance
from cua_lab.training.rewards import GroundingReward, GroundingWeights, grounding_reward
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, PAPER, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]


def landscape(
    box: Box,
    *,
    target: tuple[float, float] | None = None,
    side: int = 201,
    weights: GroundingWeights | None = None,
) -> GroundingReward:
    """The grounding reward's pieces on a grid of clicks (side, side), rows from top to bottom;
    shares of the screen throughout."""
    axis = np.linspace(0.0, 1.0, side)
    points = np.stack(np.meshgrid(axis, axis), axis=-1)  # (side, side, 2)
    return grounding_reward(points, target, box, weights=weights)


def distance_landscape(box: Box, *, side: int = 201) -> np.ndarray:
    """What `targets-click` with `reward: distance` pays for a click at each place (side, side)."""
    edges = [round(edge * (side - 1)) for edge in box]  # left, top, right, bottom
    left, top, right, bottom = edges
    return np.array(
        [
            [
                click_distance(
                    {
                        "hit": left <= x < right and top <= y < bottom,
                        "clicks": 1,
                        "last_click": [x, y],
                        "target": edges,
                    },
                    (side, side),
                ).reward
                for x in range(side)
            ]
            for y in range(side)
        ]
    )


def landscape_figure(maps: Mapping[str, np.ndarray], box: Box) -> Picture:
    """A map for each reward, and beside them a cut from left to right through the box's middle."""
    with paper():
        figure = Picture(figsize=(11, 3.4), layout="constrained")
        *panels, cut = figure.subplots(1, len(maps) + 1, width_ratios=[1] * len(maps) + [1.5])
        for axes, (name, values) in zip(panels, maps.items(), strict=True):
            _map(axes, name, values, box)
        for k, (name, values) in enumerate(maps.items()):
            row = values[round((box[1] + box[3]) / 2 * (len(values) - 1))]
            across = np.linspace(0, 1, len(row))
            cut.plot(across, row, color=COLOURS[k], linestyle=DASHES[k], label=name)
        cut.axvspan(box[0], box[2], color="#e7e9ee", zorder=0)
        cut.set_title("a cut through the middle (grey: the button)")
        cut.set_xlabel("where the click lands, share of the width")
        cut.set_ylim(-0.15, 1.4)
        cut.legend(loc="upper left")
        figure.alt = (
            f"Maps of {' and of '.join(maps)} over the screen, and a cut through the middle of the"
            " button. Both are largest inside the button."
        )
    return figure


def _map(axes: Axes, name: str, values: np.ndarray, box: Box) -> None:
    from matplotlib.patches import Rectangle

    axes.imshow(values, extent=(0, 1, 1, 0), cmap="viridis", vmin=-0.1, vmax=1.0)
    size = (box[2] - box[0], box[3] - box[1])
    for colour, width in ((INK, 2.6), (PAPER, 1.2)):
        axes.add_patch(Rectangle(box[:2], *size, fill=False, edgecolor=colour, linewidth=width))
    axes.set_title(f"{name}: {values.min():.2f} to {values.max():.2f}", loc="left")
    axes.grid(False)
    axes.set_xticks([0, 0.5, 1])
    axes.set_yticks([0, 0.5, 1])
