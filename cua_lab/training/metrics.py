"""What one GRPO step did, in numbers.

Invariant: everything but `seconds` is a function of the samples and the weights, so two runs with
one seed write the same record; what was not measured is NaN, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cua_lab.training.advantages import Advantages
from cua_lab.training.losses import LossMetrics, merge_metrics

if TYPE_CHECKING:
    from cua_lab.stitching.sample import Sample
    from cua_lab.training.batching import MicroBatch


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One call of `GRPOTrainer.step`."""

    step: int
    """Counts from 1."""
    updates: int
    """Optimizer updates of this step; 0 when it was skipped."""
    skipped: bool
    """All advantages were 0: there was nothing to learn, and the weights were left alone."""
    episodes: int
    """Episodes that count."""
    failed_episodes: int
    truncated_episodes: int
    groups: int
    zero_variance_groups: int
    reward_mean: float
    """Over the episodes that count, each once."""
    reward_std: float
    """Mean over the groups of the spread inside a group: what there is to learn from."""
    loss: float
    """Mean over the step's updates, like all that follow unless they say otherwise."""
    policy_loss: float
    """Without the KL penalty."""
    kl: float
    """NaN without a reference."""
    entropy: float
    """Nats a token."""
    lr: float
    """Of the last update."""
    grad_norm: float
    """Largest of the updates, before clipping."""
    ratio_first_error: float
    """Largest |ratio - 1| at the first update: 0, or the mathematics is wrong."""
    ratio_mean: float
    ratio_max: float
    """Largest of all updates."""
    clip_fraction: float
    tis_mean: float
    """Mean importance weight against the engine; NaN when it is off."""
    logprob_gap_max: float
    """Largest |engine - trainer| of one policy token's log-probability, before any update."""
    logprob_gap_mean: float
    policy_tokens: int
    """Tokens that carry loss."""
    tokens: int
    """All real tokens, prompts and images included."""
    padded_tokens: int
    """What the forward passes computed."""
    seconds: float

    def record(self, *, timing: bool = True) -> dict[str, Any]:
        """As a mapping for `metrics.jsonl`; without `timing` two runs can be compared."""
        values = asdict(self)
        if not timing:
            del values["seconds"]
        return values


@dataclass(frozen=True, slots=True)
class Update:
    """One optimizer update."""

    loss: float
    grad_norm: float
    """Before clipping."""
    lr: float
    metrics: LossMetrics


def step_metrics(
    *,
    step: int,
    samples: Sequence[Sample],
    advantages: Advantages,
    micros: Sequence[MicroBatch],
    updates: Sequence[Update],
    gaps: Sequence[Tensor],
    seconds: float,
) -> StepMetrics:
    """The record of one step from what its parts reported."""
    statuses = {(s.group, s.episode): s.status for s in samples}
    graded = [stats for stats in advantages.groups if stats.n]
    episodes = sum(stats.n for stats in graded)
    whole = merge_metrics([update.metrics for update in updates])
    first = updates[0].metrics if updates else None
    compared = torch.cat(list(gaps)).double() if gaps else torch.zeros(0)
    gap = compared if len(compared) else None
    count = max(1, len(updates))
    return StepMetrics(
        step=step,
        updates=len(updates),
        skipped=not updates,
        episodes=episodes,
        failed_episodes=advantages.failed_episodes,
        truncated_episodes=sum(status == "truncated" for status in statuses.values()),
        groups=len(advantages.groups),
        zero_variance_groups=advantages.zero_variance_groups,
        reward_mean=_ratio(math.fsum(stats.n * stats.mean for stats in graded), episodes),
        reward_std=_ratio(math.fsum(stats.std for stats in graded), len(graded)),
        loss=math.fsum(update.loss for update in updates) / count if updates else math.nan,
        policy_loss=whole.policy_loss / count if updates else math.nan,
        kl=whole.kl,
        entropy=whole.entropy,
        lr=updates[-1].lr if updates else math.nan,
        grad_norm=max((update.grad_norm for update in updates), default=math.nan),
        ratio_first_error=(
            max(abs(first.ratio_max - 1), abs(first.ratio_min - 1)) if first else math.nan
        ),
        ratio_mean=whole.ratio_mean,
        ratio_max=whole.ratio_max,
        clip_fraction=whole.clip_fraction,
        tis_mean=whole.tis_mean,
        logprob_gap_max=math.nan if gap is None else float(gap.max()),
        logprob_gap_mean=math.nan if gap is None else float(gap.mean()),
        policy_tokens=sum(int(micro.loss_mask.sum()) for micro in micros),
        tokens=sum(sum(micro.batch.lengths) for micro in micros),
        padded_tokens=sum(micro.loss_mask.numel() for micro in micros),
        seconds=seconds,
    )


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan
