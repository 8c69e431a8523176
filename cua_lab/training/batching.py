"""Samples into micro-batches: the same ones, in the same order, on every run.

Data model: a `MicroBatch` is one forward pass: rows of similar length, padded to the longest, with
the mask of the policy's tokens and the engine's log-probabilities laid over the whole sequence.
Invariant: rows x padded length stays within the token budget (a row longer than it stands alone),
every row with a policy token is in exactly one micro-batch, and the plan depends on nothing but
the lengths and the order of the samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Batch, Example, collate

if TYPE_CHECKING:
    from cua_lab.stitching.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """Rows for one forward pass."""

    rows: tuple[int, ...]
    """Which samples they are."""
    batch: Batch
    loss_mask: torch.Tensor
    """(B, T) bool: tokens that the policy sampled."""
    engine_logprobs: torch.Tensor
    """(B, T) float32, NaN where `loss_mask` is False."""
    comparable: torch.Tensor
    """(B, T) bool: those of `loss_mask` that stand in the context they were sampled in."""


def microbatch_rows(lengths: Sequence[int], *, budget: int) -> tuple[tuple[int, ...], ...]:
    """Indices grouped by length, longest first: what does not fit in memory fails at once."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    groups: list[list[int]] = []
    for index in order:
        # The first of a group is its longest, so it sets the padded length.
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return tuple(tuple(group) for group in groups)


def minibatch_rows(episodes: Sequence[Hashable], count: int) -> tuple[tuple[int, ...], ...]:
    """Rows in `count` parts that take every group's episodes in turn; an episode stays whole."""
    order = {episode: i for i, episode in enumerate(dict.fromkeys(episodes))}
    parts = [
        tuple(row for row, episode in enumerate(episodes) if order[episode] % count == part)
        for part in range(count)
    ]
    return tuple(part for part in parts if part)


def micro_batches(
    policy: Policy,
    samples: Sequence[Sample],
    rows: Sequence[int],
    *,
    budget: int,
    stale: bool = False,
) -> tuple[MicroBatch, ...]:
    """The micro-batches of these rows, on the CPU; rows without a policy token are left out.

    `stale`: earlier weights sampled them, so that no token is comparable.
    """
    kept = [row for row in rows if sum(samples[row].stitched.loss_mask)]
    groups = microbatch_rows([len(samples[row].stitched.tokens) for row in kept], budget=budget)
    return tuple(
        _micro_batch(policy, samples, tuple(kept[index] for index in group), stale)
        for group in groups
    )


def _micro_batch(
    policy: Policy, samples: Sequence[Sample], rows: tuple[int, ...], stale: bool
) -> MicroBatch:
    chosen = [samples[row] for row in rows]
    batch = collate(
        policy,
        [
            Example(ids=s.stitched.tokens, pixels=s.pixel_values, grids=s.image_grid_thw)
            for s in chosen
        ],
    )
    loss_mask = np.zeros(tuple(batch.ids.shape), dtype=bool)
    logprobs = np.full(tuple(batch.ids.shape), np.nan, dtype=np.float32)
    for row, sample in enumerate(chosen):
        start = sample.stitched.response_start
        span = slice(start, start + len(sample.stitched.loss_mask))
        loss_mask[row, span] = np.asarray(sample.stitched.loss_mask, dtype=bool)
        logprobs[row, span] = sample.stitched.logprobs
    logprobs[~loss_mask] = np.nan
    comparable = loss_mask & (not stale)
    for row, sample in enumerate(chosen):
        for start, end in sample.stitched.off_context:
            comparable[row, start:end] = False
    return MicroBatch(rows, batch, *map(torch.from_numpy, (loss_mask, logprobs, comparable)))
