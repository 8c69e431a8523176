"""GRPO on samples: score, compare with siblings, step the weights.

    samples ──▶ advantages (per group) ──▶ micro-batches ──▶ policy_loss ──▶ AdamW

Trainer and engine share one model. Invariants: before a step's first update the trainer's
log-probabilities agree with those the engine sampled by, token for token, or the step is refused;
the ratio at that update is exactly 1; the denominators of the loss are those of the whole
minibatch, so the token budget changes memory and speed but not the result.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cua_lab.errors import LabError
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Scores, score
from cua_lab.recipes.settings import GrpoSettings
from cua_lab.training.advantages import Advantages, group_advantages
from cua_lab.training.batching import MicroBatch, micro_batches, minibatches
from cua_lab.training.losses import (
    LossMetrics,
    LossResult,
    merge_metrics,
    policy_loss,
    row_weights,
)
from cua_lab.training.metrics import StepMetrics, Update, step_metrics

if TYPE_CHECKING:
    from cua_lab.stitching.sample import Sample


class LogprobMismatch(LabError, RuntimeError):
    """Engine and trainer do not score the same distribution: training on it would be wrong."""


@dataclass(slots=True)
class TrainerState:
    """Counters that a checkpoint keeps beside weights and optimizer."""

    step: int = 0
    """Calls of `GRPOTrainer.step`."""
    updates: int = 0
    """Optimizer updates; the learning rate warms up over them."""
    skipped: int = 0
    """Steps in which all advantages were 0."""


@dataclass(frozen=True, slots=True, eq=False)
class _OldScores:
    """What stays fixed about one micro-batch during a step."""

    old: Tensor
    """(B, T) log-probabilities before the step's first update."""
    reference: Tensor | None
    """(B, T) of the reference policy."""
    gap: Tensor
    """(N,) absolute differences between engine and trainer, one per comparable token."""


class GRPOTrainer:
    """Improves a policy from samples, one `step` at a time."""

    def __init__(
        self,
        policy: Policy,
        settings: GrpoSettings,
        *,
        temperature: float = 1.0,
        reference: Policy | None = None,
    ) -> None:
        """`temperature` is that of the rollouts. With `kl_coef` above 0 the reference is a frozen
        copy of the policy as it is NOW: build the trainer on the starting policy, then resume."""
        policy.model.eval()  # as the engine samples from it: no dropout on either side
        self.policy = policy
        self.settings = settings
        self.temperature = temperature
        self.reference = _frozen(reference or policy) if settings.kl_coef > 0 else None
        self.state = TrainerState()
        self.optimizer = torch.optim.AdamW(
            [p for p in policy.model.parameters() if p.requires_grad],
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,  # 1 ms an update instead of 6 for a small policy
        )

    def step(self, samples: Sequence[Sample]) -> StepMetrics:
        """One GRPO step over the episodes of one or more groups."""
        started = time.perf_counter()
        advantages = advantages_of(samples, self.settings)
        parts = self._parts(samples)
        self.state.step += 1
        fixed: dict[MicroBatch, _OldScores] = {}
        updates: list[Update] = []
        skipped = not parts or not (advantages.informative or self.reference)
        if skipped:
            self.state.skipped += 1
        else:
            if len(parts) > 1:  # later minibatches are scored before the first update moves on
                for micro in (micro for part in parts for micro in part):
                    fixed[micro] = self._score_before_updates(
                        micro, self._score_only(self.policy, micro), samples
                    )
            for part in parts * self.settings.epochs:
                updates.append(self._update(part, samples, advantages, fixed))
        return step_metrics(
            step=self.state.step,
            samples=samples,
            advantages=advantages,
            micros=[micro for part in parts for micro in part],
            updates=updates,
            gaps=[one.gap for one in fixed.values()],
            seconds=time.perf_counter() - started,
        )

    def _parts(self, samples: Sequence[Sample]) -> list[tuple[MicroBatch, ...]]:
        """One tuple of micro-batches per minibatch."""
        names = [(sample.group, sample.episode) for sample in samples]
        budget = self.settings.tokens_per_microbatch
        parts = [
            micro_batches(self.policy, samples, rows, budget=budget)
            for rows in minibatches(names, self.settings.minibatches)
        ]
        return [part for part in parts if part]

    def _update(
        self,
        part: tuple[MicroBatch, ...],
        samples: Sequence[Sample],
        advantages: Advantages,
        fixed: dict[MicroBatch, _OldScores],
    ) -> Update:
        """One optimizer update on one minibatch, its gradient added up over micro-batches."""
        weights = self._weights(part, samples, advantages)
        self.optimizer.zero_grad(set_to_none=True)
        loss, metrics = 0.0, list[LossMetrics]()
        for micro in part:
            scores = score(self.policy, micro.batch, micro.where, temperature=self.temperature)
            if micro not in fixed:
                fixed[micro] = self._score_before_updates(micro, scores, samples)
            result = self._loss(micro, scores, fixed[micro], advantages, weights)
            result.loss.backward()
            loss += float(result.loss.detach())
            metrics.append(result.metrics)
        grad_norm = torch.nn.utils.clip_grad_norm_(
            self.policy.model.parameters(), self.settings.grad_clip, error_if_nonfinite=True
        )
        lr = self._warm_lr()
        self.optimizer.step()
        self.state.updates += 1
        return Update(loss, float(grad_norm), lr, merge_metrics(metrics))

    def _loss(
        self,
        micro: MicroBatch,
        scores: Scores,
        fixed: _OldScores,
        advantages: Advantages,
        weights: dict[int, float],
    ) -> LossResult:
        settings = self.settings
        return policy_loss(
            scores.logprobs,
            fixed.old,
            torch.tensor([advantages.values[row] for row in micro.rows]),  # (B,)
            micro.where,
            weights=torch.tensor([weights[row] for row in micro.rows], dtype=torch.float64),
            ratio=settings.ratio,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            kl=settings.kl if self.reference else "none",
            kl_coef=settings.kl_coef,
            ref_logprobs=fixed.reference,
            tis_cap=settings.tis_cap,
            engine_logprobs=micro.engine_logprobs,
            entropy=scores.entropy,
        )

    def _weights(
        self,
        part: tuple[MicroBatch, ...],
        samples: Sequence[Sample],
        advantages: Advantages,
    ) -> dict[int, float]:
        """The weight of each row, with the denominators of the whole minibatch."""
        rows = [row for micro in part for row in micro.rows]
        dead = {stats.group for stats in advantages.groups if stats.zero_variance}
        left_out = dead if self.settings.zero_variance == "left_out" else set[str]()
        weights = row_weights(
            [sum(samples[row].stitched.loss_mask) for row in rows],
            normalise=self.settings.normalise,
            episodes=[(samples[row].group, samples[row].episode) for row in rows],
            constant=self.settings.constant,
            counted=[samples[row].group not in left_out for row in rows],
        )
        return dict(zip(rows, weights.tolist(), strict=True))

    def _warm_lr(self) -> float:
        """Linear from lr / warmup_steps to lr, constant, linear down over the last steps."""
        share = (self.state.updates + 1) / max(1, self.settings.warmup_steps)
        if self.settings.cooldown_steps:
            left = self.settings.steps - self.state.step + 1  # this step among them
            share = min(share, max(0, left) / (self.settings.cooldown_steps + 1))
        lr = self.settings.lr * min(1.0, share)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _score_only(self, policy: Policy, micro: MicroBatch) -> Scores:
        with torch.no_grad():
            return score(policy, micro.batch, micro.where, temperature=self.temperature)

    def _score_before_updates(
        self, micro: MicroBatch, scores: Scores, samples: Sequence[Sample]
    ) -> _OldScores:
        """Old and reference log-probabilities, once engine and trainer are seen to agree."""
        old = scores.logprobs.detach()
        gap = torch.where(micro.comparable, (old - micro.engine_logprobs).abs(), 0.0)  # (B, T)
        worst = float(gap.max())
        if not worst <= self.settings.logprob_gap_limit:
            raise LogprobMismatch(_explain_gap(micro, old, gap, worst, samples, self.settings))
        reference = None
        if self.reference is not None:
            reference = self._score_only(self.reference, micro).logprobs
        return _OldScores(old, reference, gap[micro.comparable])


def advantages_of(samples: Sequence[Sample], settings: GrpoSettings) -> Advantages:
    """One advantage per sample; the parts of a split episode count once."""
    return group_advantages(
        [sample.reward for sample in samples],
        [sample.group for sample in samples],
        episodes=[sample.episode for sample in samples],
        statuses=[sample.status for sample in samples],
        scale=settings.scale,
    )


def _frozen(policy: Policy) -> Policy:
    model = copy.deepcopy(policy.model).requires_grad_(False)
    return dataclasses.replace(policy, model=model.eval())


def _explain_gap(
    micro: MicroBatch,
    trainer: Tensor,
    gap: Tensor,
    worst: float,
    samples: Sequence[Sample],
    settings: GrpoSettings,
) -> str:
    row, column = divmod(int(gap.nan_to_num(nan=math.inf).argmax()), gap.shape[1])
    sample = samples[micro.rows[row]]
    return (
        f"engine and trainer disagree by {worst:.3g} (limit {settings.logprob_gap_limit:g}) on"
        f" token {column} of episode {sample.episode!r} in group {sample.group!r}: log-probability"
        f" {float(micro.engine_logprobs[row, column]):.6f} when sampled,"
        f" {float(trainer[row, column]):.6f} when trained. Same weights, temperature, top_p = 1,"
        " pixels, positions and forbidden ids on both sides? Was the token sampled after other ids"
        f" than those in front of it now ({_displacement(sample)})? Did a push leave something of"
        " the old weights in the engine: sglang keeps image features over a flush unless it was"
        " started with SGLANG_VLM_CACHE_SIZE_MB=0, vLLM needs /reset_encoder_cache and"
        " /reset_prefix_cache? Only an engine in bf16 needs a logprob_gap_limit of about 0.2 and"
        " tis_cap"
    )


def _displacement(sample: Sample) -> str:
    """What a later prompt changed in a sequence, for the message: one cause of a mismatch."""
    changed = [d for d in sample.stitched.divergences if d.kind != "rewrite"]
    if not changed:
        return "displaced tokens: none, every prompt repeats what was sampled"
    left_out = sum(end - start for start, end in sample.stitched.displaced)
    return (
        f"displaced tokens: {left_out} are known and not compared; the first change is"
        f" {changed[0].explain()}; agent.exact_continuation avoids all of them"
    )
