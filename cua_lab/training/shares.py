"""What each process does of a step: which micro-batches, and what their rows weigh.

    micro-batches of the whole batch ──in turn──▶ rank 0: 0, 2, 4 ...   rank 1: 1, 3, 5 ...

Invariant: advantages and weights are those of the WHOLE batch, computed before anything is dealt,
so adding up the ranks' gradients gives the gradient of one process; and every rank has as many
pieces in a row as the others, for all of them meet in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from cua_lab.training.batching import MicroBatch
from cua_lab.training.losses import LossMetrics

Minibatch = tuple["Piece", ...]
"""The pieces of one minibatch."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One forward pass."""

    place: int
    """Which one of the step: results are put in this order again."""
    micro: MicroBatch
    advantages: Tensor
    """(B,)"""
    weights: Tensor
    """(B,) float64, of each row's tokens in the whole minibatch."""
    live: bool = True
    """False: computed only so that ranks meet; its weights are 0 and nothing of it is recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class PieceLoss:
    """What one piece had in one update."""

    place: int
    loss: float
    metrics: LossMetrics


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """What one rank did in a step."""

    updates: tuple[tuple[PieceLoss, ...], ...]
    """Of each update, this rank's live pieces."""
    norms: tuple[float, ...]
    """Of each update's whole gradient, before clipping."""
    rates: tuple[float, ...]
    gaps: tuple[tuple[int, Tensor], ...]
    """Per place, the differences between engine and trainer (N,), on the CPU."""


def shares(minibatches: Sequence[Minibatch], count: int) -> list[tuple[Minibatch, ...]]:
    """The minibatches as each of `count` ranks plays them."""
    return [
        tuple(_share(minibatch, rank, count) for minibatch in minibatches) for rank in range(count)
    ]


def _share(minibatch: Minibatch, rank: int, count: int) -> Minibatch:
    mine = list(minibatch[rank::count])
    rounds = -(-len(minibatch) // count)
    filler = replace(minibatch[0], live=False, weights=minibatch[0].weights * 0)
    return tuple(mine + [filler] * (rounds - len(mine)))


def in_order(done: Sequence[Done], update: int) -> list[PieceLoss]:
    """The pieces of one update, of all ranks, as one process would have met them."""
    return sorted((one for rank in done for one in rank.updates[update]), key=lambda p: p.place)


def gaps_in_order(done: Sequence[Done]) -> list[Tensor]:
    """The gaps of all ranks in the same way."""
    return [gap for _, gap in sorted((g for rank in done for g in rank.gaps), key=lambda g: g[0])]
