"""GRPO on samples: score, compare with siblings, step the weights.

    samples ──▶ advantages (per group) ──▶ micro-batches ──▶ ranks ──▶ policy_loss ──▶ AdamW

On one CPU, trainer and engine share one model. Invariants: before a step's first update the
trainer's log-probabilities agree with those the engine sampled by, token for token, or the step is
refused; the ratio at that update is exactly 1; the denominators of the loss are those of the whole
minibatch, so neither the token budget nor the number of processes changes the result.

Rank 0 calls `step`; the other processes sit in `follow`, which does what rank 0 orders.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cua_lab.policy.policy import Policy
from cua_lab.recipes.settings import GrpoSettings
from cua_lab.recipes.trainer_settings import TrainerSettings
from cua_lab.training.advantages import Advantages, group_advantages
from cua_lab.training.batching import MicroBatch, micro_batches, minibatch_rows
from cua_lab.training.checkpoint import collect, load_checkpoint
from cua_lab.training.lanes import Lanes
from cua_lab.training.learner import PLAIN, Learner
from cua_lab.training.learning_rate import rate_share
from cua_lab.training.losses import merge_metrics, row_weights
from cua_lab.training.metrics import StepMetrics, Update, step_metrics
from cua_lab.training.ranks import ALONE, Ranks
from cua_lab.training.shares import Done, Minibatch, Piece, gaps_in_order, in_order, shares
from cua_lab.training.updates import LogprobMismatch, Updates

if TYPE_CHECKING:
    from cua_lab.stitching.sample import Sample

__all__ = ["GRPOTrainer", "LogprobMismatch", "TrainerState", "advantages_of"]


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
class Order:
    """What rank 0 has the others do."""

    what: Literal["step", "gather", "load", "stop"]
    minibatches: tuple[Minibatch, ...] = ()
    """Of a step: this rank's pieces; none is a step that is skipped."""
    folder: Path | None = None


class GRPOTrainer:
    """Improves a policy from samples, one `step` at a time."""

    def __init__(
        self,
        policy: Policy,
        settings: GrpoSettings,
        *,
        temperature: float = 1.0,
        reference: Policy | None = None,
        place: TrainerSettings = PLAIN,
        ranks: Ranks = ALONE,
        seed: int = 0,
        lanes: int = 1,
    ) -> None:
        """`temperature` is that of the rollouts. With `kl_coef` above 0 the reference is a frozen
        copy of the policy as it is NOW: build the trainer on the starting policy, then resume.
        `place`: device, arithmetic and which weights learn; `seed` draws adapters.
        `lanes` is how many parts of an update a plain trainer of one process computes at once."""
        self.policy = policy
        self.settings = settings
        self.temperature = temperature
        self.ranks = ranks
        self.learner = Learner(policy, place, ranks, seed=seed)
        self.weights = None if place.plain else self.learner
        """What a checkpoint saves and loads instead of the policy as it is."""
        self.reference = self.learner.frozen(reference) if settings.kl_coef > 0 else None
        self.lanes = Lanes(lanes if place.plain and ranks.alone else 1)
        self.state = TrainerState()
        self.optimizer = torch.optim.AdamW(
            self.learner.parameters,
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,  # 1 ms an update instead of 6 for a small policy
        )

    def step(self, samples: Sequence[Sample], *, stale: bool = False) -> StepMetrics:
        """One GRPO step over the episodes of one or more groups; on rank 0.

        `stale`: an earlier state of the weights sampled them, so that their log-probabilities are
        corrected for (`tis_cap`) and not compared.
        """
        started = time.perf_counter()
        advantages = advantages_of(samples, self.settings)
        minibatches = self._minibatches(samples, advantages, stale)
        if not minibatches or not (advantages.informative or self.reference):
            dealt: tuple[Minibatch, ...] = ()
        else:
            dealt = tuple(minibatches)
        mine = self._tell([Order("step", share) for share in shares(dealt, self.ranks.count)])
        done = self._play(mine.minibatches, samples)
        return step_metrics(
            step=self.state.step,
            samples=samples,
            advantages=advantages,
            micros=[piece.micro for minibatch in minibatches for piece in minibatch],
            updates=_updates(done),
            gaps=gaps_in_order(done),
            seconds=time.perf_counter() - started,
        )

    # -- other processes ---------------------------------------------------------------------

    def follow(self) -> None:
        """On every rank but 0: do as rank 0 does until it ends."""
        while True:
            order: Order = self.ranks.deal(None)
            if order.what == "stop":
                return
            self._obey(order)

    def gather(self) -> None:
        """Rank 0, before it saves or pushes: have the others take part in putting weights together.

        What follows on rank 0 must go through `collect` once, as saving a checkpoint does.
        """
        self._tell([Order("gather")] * self.ranks.count)

    def load(self, folder: Path) -> dict[str, Any]:
        """Go on from a checkpoint, on every rank; returns its `extra`."""
        self._tell([Order("load", folder=folder)] * self.ranks.count)
        return load_checkpoint(folder, self, weights=self.weights)

    def close(self) -> None:
        """Let the other ranks go."""
        self._tell([Order("stop")] * self.ranks.count)

    def _tell(self, orders: Sequence[Order]) -> Order:
        return self.ranks.deal(orders)

    def _obey(self, order: Order) -> None:
        if order.what == "step":
            self._play(order.minibatches, ())
        elif order.what == "gather":
            collect(self)
        elif order.folder is not None:
            load_checkpoint(order.folder, self, weights=self.weights)

    # -- a step ------------------------------------------------------------------------------

    def _play(self, minibatches: tuple[Minibatch, ...], samples: Sequence[Sample]) -> list[Done]:
        """This rank's pieces; what all ranks did, on all of them."""
        self.state.step += 1
        if not minibatches:
            self.state.skipped += 1
            return []

        def explain(micro: MicroBatch, trainer: Tensor, gap: Tensor, worst: float) -> str:
            return _explain_gap(micro, trainer, gap, worst, samples, self.settings)

        updates = Updates(
            self.learner,
            self.settings,
            self.optimizer,
            temperature=self.temperature,
            reference=self.reference,
            explain=explain,
            lanes=self.lanes,
        )
        return self.ranks.gather(updates.run(minibatches, self._next_rate))

    def _minibatches(
        self, samples: Sequence[Sample], advantages: Advantages, stale: bool
    ) -> list[Minibatch]:
        """One tuple of pieces per minibatch."""
        names = [(sample.group, sample.episode) for sample in samples]
        budget = self.settings.tokens_per_microbatch
        minibatches: list[Minibatch] = []
        place = 0
        for rows in minibatch_rows(names, self.settings.minibatches):
            micros = micro_batches(self.policy, samples, rows, budget=budget, stale=stale)
            weights = self._weights(micros, samples, advantages)
            pieces = [
                Piece(
                    place + index,
                    micro,
                    torch.tensor([advantages.values[row] for row in micro.rows]),  # (B,)
                    torch.tensor([weights[row] for row in micro.rows], dtype=torch.float64),
                )
                for index, micro in enumerate(micros)
            ]
            place += len(pieces)
            if pieces:
                minibatches.append(tuple(pieces))
        return minibatches

    def _weights(
        self,
        micros: Sequence[MicroBatch],
        samples: Sequence[Sample],
        advantages: Advantages,
    ) -> dict[int, float]:
        """The weight of each row, with the denominators of the whole minibatch."""
        rows = [row for micro in micros for row in micro.rows]
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

    def _next_rate(self) -> float:
        """The learning rate of the update that is due; each call counts one."""
        lr = self.settings.lr * rate_share(
            update=self.state.updates + 1,
            left=self.settings.steps - self.state.step + 1,
            warmup_steps=self.settings.warmup_steps,
            cooldown_steps=self.settings.cooldown_steps,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.state.updates += 1
        return lr


def _updates(done: Sequence[Done]) -> list[Update]:
    """Each update of the step, from what all ranks report."""
    if not done:
        return []
    updates = []
    for index, (norm, rate) in enumerate(zip(done[0].norms, done[0].rates, strict=True)):
        losses = in_order(done, index)
        loss = 0.0
        for one in losses:
            loss += one.loss
        updates.append(Update(loss, norm, rate, merge_metrics([one.metrics for one in losses])))
    return updates


def advantages_of(samples: Sequence[Sample], settings: GrpoSettings) -> Advantages:
    """One advantage per sample; the parts of a split episode count once."""
    return group_advantages(
        [sample.reward for sample in samples],
        [sample.group for sample in samples],
        episodes=[sample.episode for sample in samples],
        statuses=[sample.status for sample in samples],
        scale=settings.scale,
    )


def _explain_gap(
    micro: MicroBatch,
    trainer: Tensor,
    gap: Tensor,
    worst: float,
    samples: Sequence[Sample],
    settings: GrpoSettings,
) -> str:
    row, column = divmod(int(gap.nan_to_num(nan=math.inf).argmax()), gap.shape[1])
    sample = samples[micro.rows[row]] if samples else None  # only rank 0 has them
    where = f"sample {micro.rows[row]} of the step"
    if sample is not None:
        where = f"episode {sample.episode!r} in group {sample.group!r}"
    return (
        f"engine and trainer disagree by {worst:.3g} (limit {settings.logprob_gap_limit:g}) on"
        f" token {column} of {where}: log-probability"
        f" {float(micro.engine_logprobs[row, column]):.6f} when sampled,"
        f" {float(trainer[row, column]):.6f} when trained. Same weights, temperature, top_p = 1,"
        " pixels, positions and forbidden ids on both sides? Was the token sampled after other ids"
        f" than those in front of it now ({_off_context(sample)})? Did a push leave something of"
        " the old weights in the engine: sglang keeps image features over a flush unless it was"
        " started with SGLANG_VLM_CACHE_SIZE_MB=0, vLLM needs /reset_encoder_cache and"
        " /reset_prefix_cache? Only an engine in bf16 needs a logprob_gap_limit of about 0.2 and"
        " tis_cap"
    )


def _off_context(sample: Sample | None) -> str:
    """What a later prompt changed in a sequence, for the message: one cause of a mismatch."""
    if sample is None:
        return "rank 0 knows"
    changed = [d for d in sample.stitched.divergences if d.kind != "rewrite"]
    if not changed:
        return "tokens off their context: none, every prompt repeats what was sampled"
    left_out = sum(end - start for start, end in sample.stitched.off_context)
    return (
        f"tokens off their context: {left_out} are known and not compared; the first change is"
        f" {changed[0].explain()}; agent.token_in avoids all of them"
    )
