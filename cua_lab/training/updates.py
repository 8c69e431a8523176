"""One rank's part of a GRPO step: score, compare, add up gradients, update.

Invariants: before the first update of a step every policy token's log-probability agrees with the
one it was sampled by, or all ranks refuse the step; the ratio at that update is exactly 1; every
rank ends with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cua_lab.errors import LabError
from cua_lab.policy.scoring import Scores, moved
from cua_lab.recipes.settings import GrpoSettings
from cua_lab.training.batching import MicroBatch
from cua_lab.training.lanes import Gradient, Lanes, set_gradients
from cua_lab.training.learner import Frozen, Learner
from cua_lab.training.losses import LossResult, policy_loss
from cua_lab.training.rank_parity import check_vision_parity
from cua_lab.training.shares import Done, Minibatch, Piece, PieceLoss

Explain = Callable[[MicroBatch, Tensor, Tensor, float], str]
"""In words: a micro-batch, the trainer's log-probabilities (B, T), the gap (B, T), its maximum."""


class LogprobMismatch(LabError, RuntimeError):
    """Engine and trainer do not score the same distribution: training on it would be wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class OldScores:
    """What stays fixed about one micro-batch during a step."""

    logprobs: Tensor
    """(B, T) log-probabilities before the step's first update."""
    reference: Tensor | None
    """(B, T) of the reference policy."""
    gap: Tensor
    """(N,) absolute differences between engine and trainer, one per comparable token."""


class Updates:
    """The updates of one step on this rank's pieces."""

    def __init__(
        self,
        learner: Learner,
        settings: GrpoSettings,
        optimizer: torch.optim.Optimizer,
        *,
        temperature: float,
        reference: Frozen | None,
        explain: Explain,
        lanes: Lanes | None = None,
    ) -> None:
        self._learner, self._settings, self._optimizer = learner, settings, optimizer
        self._temperature, self._reference, self._explain = temperature, reference, explain
        self._lanes = lanes or Lanes()
        self._old_scores: dict[int, OldScores] = {}

    def run(self, minibatches: Sequence[Minibatch], next_rate: Callable[[], float]) -> Done:
        """All updates of the step; `next_rate` gives the learning rate of each as it is due."""
        if not self._learner.ranks.alone:
            images = [
                len(piece.micro.batch.image_index)
                for minibatch in minibatches
                for piece in minibatch
            ]
            check_vision_parity(self._learner.ranks, images)
        if len(minibatches) > 1:  # later minibatches are scored before the first update moves on
            for piece in (piece for minibatch in minibatches for piece in minibatch):
                with torch.no_grad():
                    scores = self._score(piece.micro)
                self._keep_old_scores(piece, scores)
        updates, norms, rates = [], [], []
        for minibatch in list(minibatches) * self._settings.epochs:
            losses, norm, rate = self._update(minibatch, next_rate)
            updates.append(losses)
            norms.append(norm)
            rates.append(rate)
        live = {piece.place for minibatch in minibatches for piece in minibatch if piece.live}
        gaps = tuple(
            (place, one.gap.cpu()) for place, one in self._old_scores.items() if place in live
        )
        return Done(tuple(updates), tuple(norms), tuple(rates), gaps)

    def _update(
        self, minibatch: Minibatch, next_rate: Callable[[], float]
    ) -> tuple[tuple[PieceLoss, ...], float, float]:
        """One optimizer update on one minibatch, its gradient added up over pieces and ranks."""
        learner = self._learner
        self._optimizer.zero_grad(set_to_none=True)
        losses = self._gradients(minibatch)
        learner.add_up()
        norm = learner.clip(self._settings.grad_clip)
        rate = next_rate()
        self._optimizer.step()
        return losses, norm, rate

    def _gradients(self, minibatch: Minibatch) -> tuple[PieceLoss, ...]:
        """Give the parameters the minibatch's gradient."""
        count = self._lanes.count
        if count == 1:
            return tuple(found for piece in minibatch if (found := self._piece(piece, _backward)))
        parameters = self._learner.parameters
        sums = [Gradient(parameters) for _ in range(min(count, len(minibatch)))]

        def lane(index: int) -> list[PieceLoss | None]:
            return [self._piece(piece, sums[index].add) for piece in minibatch[index::count]]

        done = self._lanes.run([partial(lane, index) for index in range(len(sums))])
        set_gradients(parameters, sums)
        return tuple(found for pieces in done for found in pieces if found)

    def _piece(self, piece: Piece, backward: Callable[[Tensor], None]) -> PieceLoss | None:
        """Score one piece and add its gradient; its loss, where it counts."""
        scores = self._score(piece.micro)
        if piece.place not in self._old_scores:
            self._keep_old_scores(piece, scores)
        result = self._loss(piece, scores)
        scale = self._learner.loss_scale
        backward(result.loss if scale == 1 else scale * result.loss)
        if not piece.live:
            return None
        return PieceLoss(piece.place, float(result.loss.detach()), result.metrics)

    def _score(self, micro: MicroBatch) -> Scores:
        return self._learner.score(micro.batch, micro.loss_mask, temperature=self._temperature)

    def _loss(self, piece: Piece, scores: Scores) -> LossResult:
        settings, micro, old_scores = self._settings, piece.micro, self._old_scores[piece.place]
        device = scores.logprobs.device
        return policy_loss(
            scores.logprobs,
            old_scores.logprobs,
            moved(piece.advantages, device),
            moved(micro.loss_mask, device),
            weights=moved(piece.weights, device),
            ratio=settings.ratio,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            kl=settings.kl if self._reference else "none",
            kl_coef=settings.kl_coef,
            ref_logprobs=old_scores.reference,
            tis_cap=settings.tis_cap,
            engine_logprobs=moved(micro.engine_logprobs, device),
            entropy=scores.entropy,
        )

    def _keep_old_scores(self, piece: Piece, scores: Scores) -> None:
        """Old and reference log-probabilities, once engine and trainer are seen to agree."""
        micro = piece.micro
        old = scores.logprobs.detach()
        engine, comparable = (
            moved(t, old.device) for t in (micro.engine_logprobs, micro.comparable)
        )
        gap = torch.where(comparable, (old - engine).abs(), 0.0)  # (B, T)
        worst = float(gap.max())
        fine = worst <= self._settings.logprob_gap_limit
        problem = None if fine else self._explain(micro, old, gap, worst)
        if found := self._learner.ranks.agree(problem):
            raise LogprobMismatch(found)
        reference = None
        if self._reference is not None:
            reference = self._reference.score(
                micro.batch, micro.loss_mask, temperature=self._temperature
            )
        self._old_scores[piece.place] = OldScores(old, reference, gap[comparable])


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
