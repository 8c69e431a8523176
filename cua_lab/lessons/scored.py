"""Scores of the exercises that build: how far an answer agrees with the package.

Invariant: an answer is compared by value and by gradient on seeded random input, never by its code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cua_lab.training.losses import policy_loss

LOW, HIGH = 0.2, 0.28
Loss = Callable[..., torch.Tensor]
"""(now, old, advantages, mask, low, high) -> scalar."""


def losses_agree(answer: Loss, batches: int = 200) -> int:
    """On how many random batches an answer to "write the clipped loss" has the package's value and
    gradient; masked positions are NaN."""
    return sum(_agrees(answer, seed) for seed in range(batches))


def _agrees(answer: Loss, seed: int) -> bool:
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(3, 5, generator=draw) < 0.7
    mask[0, 0] = True  # a batch without a token has no mean
    old = torch.where(mask, -2 * torch.rand(3, 5, generator=draw), torch.nan)  # (B, T)
    now = old + 0.5 * torch.randn(3, 5, generator=draw)
    advantages = torch.randn(3, generator=draw)  # (B,)
    found = []
    for loss_of in (answer, _package):
        leaf = now.clone().requires_grad_()
        loss = loss_of(leaf, old, advantages, mask, LOW, HIGH)
        (gradient,) = torch.autograd.grad(loss, leaf)
        found.append((loss.detach(), gradient[mask]))
    (loss, gradient), (right, wanted) = found
    return torch.allclose(loss, right, atol=1e-6) and torch.allclose(gradient, wanted, atol=1e-6)


def _package(
    now: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor,
    low: float, high: float,
) -> torch.Tensor:  # fmt: skip
    return policy_loss(now, old, advantages, mask, clip_low=low, clip_high=high).loss
