"""Five ways to get a training row wrong that run without an error, beside the right one.

Each takes the rows of a batch as they should be and returns them as a mistaken trainer would have
them. Invariant: only what the mistake is about changes; tokens, pixels and advantages stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cua_lab.policy.policy import Policy
from cua_lab.policy.template import encode
from cua_lab.stitching.codec import TableCodec
from cua_lab.training.gradient_report import LossInput, as_sampled, look
from cua_lab.training.warmup import assistant_mask


def spelled_out(
    policy: Policy, rows: Sequence[LossInput], codec: TableCodec, words: frozenset[bytes]
) -> list[LossInput]:
    """The rows as they would be, had the policy written `words` letter by letter: the same text in
    other ids, each with the probability that the policy gives it."""
    byte_id = {codec.token_bytes(i): i for i in codec.table}

    def spelled(row: LossInput) -> LossInput:
        ids: list[int] = []
        mask: list[int] = []
        for i, m in zip(row.example.ids, row.mask, strict=True):
            data = b"" if i in codec.control else codec.token_bytes(i)
            parts = [byte_id[bytes([b])] for b in data] if m and data in words else [i]
            ids += parts
            mask += [m] * len(parts)
        return replace(
            row, example=replace(row.example, ids=ids), mask=mask, logprobs=[0.0] * len(ids)
        )

    return as_sampled(policy, [spelled(row) for row in rows])


def by_role(policy: Policy, rows: Sequence[LossInput]) -> list[LossInput]:
    """Everything that an assistant said carries loss, sampled or not."""
    opening = encode(policy.tokenizer, "<|im_start|>assistant\n")

    def said(row: LossInput) -> LossInput:
        ids = list(row.example.ids)
        messages = sum(ids[i : i + len(opening)] == opening for i in range(len(ids)))
        return replace(row, mask=assistant_mask(policy, ids, messages).astype(int).tolist())

    return as_sampled(policy, [said(row) for row in rows])


def without_newlines(policy: Policy, rows: Sequence[LossInput]) -> list[LossInput]:
    """The newline that the template writes after each end token is lost, as by code that glues
    turns together by itself."""
    (newline,) = encode(policy.tokenizer, "\n")

    def glued(row: LossInput) -> LossInput:
        ids, first = row.example.ids, list(row.mask).index(1)
        kept = [
            i
            for i in range(len(ids))
            if i < first or not (ids[i] == newline and ids[i - 1] in policy.stop_ids)
        ]
        return replace(
            row,
            example=replace(row.example, ids=[ids[i] for i in kept]),
            mask=[row.mask[i] for i in kept],
            logprobs=[row.logprobs[i] for i in kept],
        )

    return [glued(row) for row in rows]


def zero_logprobs(rows: Sequence[LossInput]) -> list[LossInput]:
    """What is missing is taken for 0.0: a probability of 1."""
    return [replace(row, logprobs=[0.0] * len(row.mask)) for row in rows]


def without_stop(policy: Policy, rows: Sequence[LossInput]) -> list[LossInput]:
    """The token that ends an answer carries no loss."""
    return [
        replace(
            row,
            mask=[
                m * (i not in policy.stop_ids)
                for m, i in zip(row.mask, row.example.ids, strict=True)
            ],
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Damage:
    """A mistaken gradient beside the true one."""

    tokens: int
    true_tokens: int
    low: float
    """Smallest ratio; 1 before the first update, where nothing is wrong."""
    high: float
    cosine: float
    """1: the same direction; NaN where one of the gradients is zero."""
    length: float
    """A multiple of the true one's."""

    def __str__(self) -> str:
        counts = f"{self.tokens:4} tokens of {self.true_tokens:4}"
        ratios = f"ratio {self.low:.2g} to {self.high:.2g}"
        if np.isnan(self.cosine):
            return f"{counts}, {ratios}: all advantages are 0, so there is no direction"
        return f"{counts}, {ratios}, cosine {self.cosine:.2f}, length {self.length:.2f}"


def damage(policy: Policy, wrong: Sequence[LossInput], true: Sequence[LossInput]) -> Damage:
    """What the mistake does to the gradient of one batch."""
    got, right = look(policy, wrong), look(policy, true)
    ratios = np.concatenate(got.ratios)
    cosine = got.cosine(right)
    length = float("nan") if np.isnan(cosine) else got.length(right)
    return Damage(
        got.tokens, right.tokens, float(ratios.min()), float(ratios.max()), cosine, length
    )


def damages(
    policy: Policy, cases: Mapping[str, tuple[Sequence[LossInput], Sequence[LossInput]]]
) -> dict[str, Damage]:
    """One row of a table for each (wrong, true)."""
    return {name: damage(policy, wrong, true) for name, (wrong, true) in cases.items()}
