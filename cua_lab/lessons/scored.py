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


def imitations_agree(answer: Loss, batches: int = 200) -> int:
    """On how many random conversations an answer to "write the warm-up's loss" has the right value
    and gradient: `answer(logits, ids, mask)`, logits (T, V), ids and mask (T,)."""
    return sum(_imitates(answer, seed) for seed in range(batches))


def _imitates(answer: Loss, seed: int) -> bool:
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(9, 7, generator=draw)  # (T, V)
    ids = torch.randint(7, (9,), generator=draw)  # (T,)
    mask = torch.rand(9, generator=draw) < 0.5
    mask[0], mask[4] = False, True  # nothing predicts the first token
    found = []
    for loss_of in (answer, _imitation):
        leaf = logits.clone().requires_grad_()
        loss = loss_of(leaf, ids, mask)
        found.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


def _imitation(logits: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """By a second way than `training.warmup`: torch's own cross-entropy, which drops label -100."""
    labels = torch.where(mask, ids, -100)[1:]
    return torch.nn.functional.cross_entropy(logits[:-1], labels)


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
