"""What a batch would do to the weights, without doing it: the gradient, and each token's push.

Data model: a `LossInput` is a sequence with everything the loss reads, all over the WHOLE sequence,
so that any of it can be got wrong on purpose and compared. A `GradientReport` is the gradient of
the policy loss as one vector, with ratio, push and entropy of every masked-in token. Invariant: the
policy is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cua_lab.policy.scoring import Example, collate, score
from cua_lab.training.losses import policy_loss

if TYPE_CHECKING:
    from cua_lab.policy.policy import Policy
    from cua_lab.stitching.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class LossInput:
    """One training sequence as the loss sees it."""

    example: Example
    mask: Sequence[int]
    """(T,): 1 where the token carries loss."""
    logprobs: Sequence[float]
    """(T,): when it was sampled; anything where the mask is 0."""
    advantage: float

    def __post_init__(self) -> None:
        for name in ("mask", "logprobs"):
            if len(getattr(self, name)) != len(self.example.ids):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries but the sequence has"
                    f" {len(self.example.ids)} tokens; both cover all of it, prompt included"
                )


@dataclass(frozen=True, slots=True, eq=False)
class GradientReport:
    """What one update would do."""

    gradient: Tensor
    """(P,): of the loss, over all weights."""
    ratios: tuple[np.ndarray, ...]
    """(N_i,) a row: new over old probability of each masked-in token."""
    pushes: tuple[np.ndarray, ...]
    """(N_i,) a row: minus the gradient of the loss by the token's log-probability. Above 0 the
    update makes the token likelier, below 0 less likely, at 0 it does nothing."""
    entropies: tuple[np.ndarray, ...]
    """(N_i,) a row: nats, of the distribution that each token was drawn from."""

    @property
    def tokens(self) -> int:
        """How many carry loss."""
        return sum(map(len, self.ratios))

    def cosine(self, other: GradientReport) -> float:
        """1: the same direction; 0: at right angles; NaN where one of them is zero."""
        mine, theirs = self.gradient.double(), other.gradient.double()
        lengths = float(mine.norm() * theirs.norm())
        return float(mine @ theirs) / lengths if lengths else math.nan

    def length(self, other: GradientReport) -> float:
        """How long this gradient is, as a multiple of the other."""
        return float(self.gradient.norm() / other.gradient.norm())


def row_of(sample: Sample, advantage: float) -> LossInput:
    """The row that training would make of a sample."""
    stitched = sample.stitched
    prompt = stitched.response_start
    return LossInput(
        example=Example(stitched.tokens, sample.pixel_values, sample.image_grid_thw),
        mask=(0,) * prompt + stitched.loss_mask,
        logprobs=(math.nan,) * prompt + stitched.logprobs,
        advantage=advantage,
    )


def look(
    policy: Policy, rows: Sequence[LossInput], *, temperature: float = 1.0, **loss: Any
) -> GradientReport:
    """The gradient of `policy_loss` over the rows as one batch; `loss` are its options."""
    batch = collate(policy, [row.example for row in rows])
    mask, old = _columns(rows, tuple(batch.ids.shape))
    policy.model.zero_grad(set_to_none=True)
    scores = score(policy, batch, mask, temperature=temperature)
    logprobs = scores.logprobs
    logprobs.retain_grad()
    advantages = torch.tensor([row.advantage for row in rows])
    policy_loss(logprobs, old, advantages, mask, **loss).loss.backward()  # type: ignore[no-untyped-call]
    flat = [
        (p.grad if p.grad is not None else torch.zeros_like(p)).flatten().clone()
        for p in policy.model.parameters()
    ]
    policy.model.zero_grad(set_to_none=True)
    assert logprobs.grad is not None
    ratios, pushes = (logprobs.detach() - old).exp(), -logprobs.grad
    return GradientReport(
        gradient=torch.cat(flat),
        ratios=tuple(r[w].numpy() for r, w in zip(ratios, mask, strict=True)),
        pushes=tuple(p[w].numpy() for p, w in zip(pushes, mask, strict=True)),
        entropies=tuple(e[w].numpy() for e, w in zip(scores.entropy, mask, strict=True)),
    )


def as_sampled(
    policy: Policy, rows: Sequence[LossInput], *, temperature: float = 1.0
) -> list[LossInput]:
    """The same rows with the log-probabilities that this policy gives their tokens: what an engine
    that holds it would have recorded, had it sampled them."""
    batch = collate(policy, [row.example for row in rows])
    mask, _ = _columns(rows, tuple(batch.ids.shape))
    with torch.no_grad():
        found = score(policy, batch, mask, temperature=temperature).logprobs
    return [
        LossInput(row.example, row.mask, tuple(values[: len(row.mask)].tolist()), row.advantage)
        for row, values in zip(rows, found, strict=True)
    ]


def _columns(rows: Sequence[LossInput], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mask and old log-probabilities, padded to (B, T)."""
    mask = torch.zeros(shape, dtype=torch.bool)
    old = torch.full(shape, math.nan)
    for index, row in enumerate(rows):
        length = len(row.mask)
        mask[index, :length] = torch.tensor(row.mask, dtype=torch.bool)
        old[index, :length] = torch.tensor(row.logprobs)
    return mask, old
