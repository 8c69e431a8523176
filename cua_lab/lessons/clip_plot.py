"""The clip as two lines: what a token's loss is, over how far its probability has moved.

Invariant: the values are those of `cua_lab.training.losses.policy_loss`, no formula of its own.
"""

from __future__ import annotations

import numpy as np
import torch

from cua_lab.training.losses import policy_loss
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, paper


def clipped_losses(ratios: np.ndarray, advantage: float, low: float, high: float) -> np.ndarray:
    """The loss of a token at each ratio."""
    now = torch.tensor(np.log(ratios))[:, None]  # (N, 1): a batch of one-token episodes
    one = torch.ones_like(now, dtype=torch.bool)
    sign = torch.tensor([advantage], dtype=now.dtype)
    losses = [
        policy_loss(row[None], torch.zeros_like(row[None]), sign, mask[None], clip_low=low,
                    clip_high=high).loss
        for row, mask in zip(now, one, strict=True)
    ]  # fmt: skip
    return np.array([float(loss) for loss in losses])


def clip_figure(low: float, high: float) -> Picture:
    """Loss against ratio for a good and for a bad token; flat where the clip holds it."""
    ratios = np.linspace(0.3, 1.9, 129)
    with paper():
        figure = Picture(figsize=(10.5, 3.0), layout="constrained")
        panels = figure.subplots(1, 2)
        signs = {"advantage +1: make it likelier": 1.0, "advantage -1: make it rarer": -1.0}
        for axes, (title, sign) in zip(panels, signs.items(), strict=True):
            losses = clipped_losses(ratios, sign, low, high)
            axes.plot(ratios, -ratios * sign, color=INK, linestyle=DASHES[1], label="no clip")
            axes.plot(ratios, losses, color=COLOURS[0], linewidth=2.4, label="clipped")
            for edge in (1 - low, 1 + high):
                axes.axvline(edge, color=COLOURS[1], linestyle=(0, (2, 2)), linewidth=1.2)
            axes.set_title(title)
            axes.set_xlabel("ratio: probability now / when sampled")
        panels[0].set_ylabel("loss of the token")
        panels[0].legend()
        figure.alt = (
            "The loss of a token against its ratio. With a positive advantage it falls with the"
            f" ratio and is flat from {1 + high:g} on; with a negative one it rises with the ratio"
            f" and is flat below {1 - low:g}. Where it is flat there is no gradient."
        )
    return figure
