"""Which tokens of a batch are one and the same: equal ids and images before them, equal states.

    rows (B, T) ──▶ distinct tokens (U,), and where each of them stands

Attention is causal, so the state of a token is a function of what stands up to it. Members of a
group begin with one prompt and one screenshot, all demonstrations with one system prompt, and
padding is no token at all: what is alike is computed once. Invariant: two places share a token
exactly when everything up to them is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The distinct tokens of a batch."""

    token: np.ndarray
    """int64 (B, T): which distinct token stands there; 0 where a row is padded."""
    first: np.ndarray
    """int64 (U,): the first place, in the flattened batch, of each distinct token."""


def shared_tokens(
    rows: Sequence[Sequence[int]], images: Sequence[Sequence[int]], *, image_token_id: int
) -> Shared:
    """`images` tells, for each row, which distinct image each of its image tokens belongs to."""
    width = max(len(row) for row in rows)
    token = np.zeros((len(rows), width), dtype=np.int64)
    first: list[int] = []
    known: dict[tuple[int, int], int] = {}
    for index, (row, owners) in enumerate(zip(rows, images, strict=True)):
        before, owner, place = -1, iter(owners), index * width
        for column, id in enumerate(row):
            # An image token says nothing; its picture does. Ids are never negative.
            said = -1 - next(owner) if id == image_token_id else id
            found = known.setdefault((before, said), len(first))
            if found == len(first):
                first.append(place + column)
            token[index, column] = before = found
    return Shared(token, np.asarray(first, dtype=np.int64))
