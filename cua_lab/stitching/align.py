"""Which ids two renderings of one text share, and which stand for each other.

Both texts lie on one common axis: a piece of equal bytes is as long as its bytes, a changed piece
is 1 long. A place between two ids lies at an interval of that axis: at a point as a rule, at
[v, v + 1] where the changed piece there is empty on its side, nowhere within a changed piece. Where
the intervals of two places meet, the renderings are in step.

Invariant: outside the regions the ids are the same, and no region starts or ends with one id twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from cua_lab.stitching.rerender import Piece

Kind = Literal["white_space", "json", "resplit", "rewrite"]
Place = tuple[float, float]
Span = tuple[int, int, int, int]
"""(start, end, new_start, new_end) of a region."""


@dataclass(frozen=True, slots=True)
class Region:
    """Ids [start, end) on record became ids [new_start, new_end) of the prompt."""

    start: int
    end: int
    new_start: int
    new_end: int
    kind: Kind


def align(
    mine: Sequence[int],
    other: Sequence[int],
    emitted: Sequence[bytes],
    rendered: Sequence[bytes],
    pieces: Sequence[Piece],
    *,
    at: tuple[int, int] = (0, 0),
    sampled: Sequence[bool] | None = None,
) -> list[Region]:
    """The regions in which two renderings differ, their indices counted from `at`.

    `emitted` and `rendered` are the bytes of the ids, `pieces` what changed between the texts;
    `sampled` says which of `mine` the policy sampled (default: all).
    """
    a, b = (
        _Side(emitted, [p.emitted for p in pieces]),
        _Side(rendered, [p.rendered for p in pieces]),
    )
    spans = [_trimmed(mine, other, (0, len(mine), 0, len(other)))]
    start, end, new_start, new_end = spans[0]
    if min(end - start, new_end - new_start) > 1:  # one id for any number needs no search
        axis = _axis(pieces)
        mine_places = [a.place(i, axis) for i in range(start, end + 1)]
        other_places = [b.place(j, axis) for j in range(new_start, new_end + 1)]
        found = _search(mine[start:end], other[new_start:new_end], mine_places, other_places)
        shifted = [(i + start, k + start, j + new_start, m + new_start) for i, k, j, m in found]
        spans = [_trimmed(mine, other, span) for span in shifted]
    if sampled is not None and not all(sampled):
        ends = [*(span[0] for span in spans[1:]), len(mine)]
        spans = [
            _without_foreign(span, end, sampled, pieces, a)
            for span, end in zip(spans, ends, strict=True)
        ]
    return [
        Region(at[0] + i, at[0] + k, at[1] + j, at[1] + m, _kind(pieces, a, b, (i, k), (j, m)))
        for i, k, j, m in spans
        if k > i or m > j
    ]


class _Side:
    """One rendering: where its ids and its pieces begin, in bytes."""

    def __init__(self, tokens: Sequence[bytes], pieces: Sequence[int]) -> None:
        self.token_starts = list(accumulate(map(len, tokens), initial=0))
        self.piece_starts = list(accumulate(pieces, initial=0))

    def place(self, token: int, axis: Sequence[tuple[int, bool]]) -> Place:
        """The interval on the axis before an id."""
        offset = self.token_starts[token]
        piece = bisect_right(self.piece_starts, offset) - 1  # the last to start at or before it
        first = piece
        while first > 0 and self.piece_starts[first - 1] == offset:
            first -= 1  # those in front of it are empty on this side
        inside = offset - self.piece_starts[piece]
        start, same = axis[piece]
        if inside and not same:
            return start + 0.75, start + 0.25
        return float(axis[first][0] + inside), float(start + inside)

    def touched(self, piece: int, tokens: tuple[int, int]) -> bool:
        """Whether a piece has bytes within the ids [start, end)."""
        low, high = self.piece_starts[piece], self.piece_starts[piece + 1]
        start, end = self.token_starts[tokens[0]], self.token_starts[tokens[1]]
        return max(low, start) < min(high, end)


def _axis(pieces: Sequence[Piece]) -> list[tuple[int, bool]]:
    """(where it starts on the axis, whether its bytes are equal) of each piece, and of the end."""
    lengths = [piece.emitted if piece.change is None else 1 for piece in pieces]
    starts = accumulate(lengths, initial=0)
    return list(zip(starts, [*(piece.change is None for piece in pieces), True], strict=True))


def _shared(mine: Sequence[int], other: Sequence[int]) -> int:
    """How many ids agree from the start on."""
    pairs = zip(mine, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(other)))


def _trimmed(mine: Sequence[int], other: Sequence[int], span: Span) -> Span:
    """A region without the ids that agree at its ends."""
    start, end, new_start, new_end = span
    head = _shared(mine[start:end], other[new_start:new_end])
    rest = mine[start + head : end], other[new_start + head : new_end]
    tail = _shared(rest[0][::-1], rest[1][::-1])
    return start + head, end - tail, new_start + head, new_end - tail


def _without_foreign(
    span: Span, limit: int, sampled: Sequence[bool], pieces: Sequence[Piece], a: _Side
) -> Span:
    """A region that gives up ids of the scaffold, with the sampled ids that took their place.

    The scaffold ends in "\\n" (198) and the policy begins with "\\n\\n" (271); the prompt has one
    271 for both. Its id is the sampled one, its text half the scaffold's: nobody sampled that id
    there, so it is adopted with the rest of the changed white space. `limit`: where the next region
    starts.
    """
    start, end, new_start, new_end = span
    if all(sampled[start:end]):
        return span
    changed = [i for i, p in enumerate(pieces) if p.change and a.touched(i, (start, end))]
    while end < limit and sampled[end] and any(a.touched(i, (end, end + 1)) for i in changed):
        end, new_end = end + 1, new_end + 1
    return start, end, new_start, new_end


def _search(
    mine: Sequence[int], other: Sequence[int], a: Sequence[Place], b: Sequence[Place]
) -> list[Span]:
    """The shortest regions that start and end in step, left to right.

    A walk with one finger on each rendering. While the next ids are the same and stand at the same
    place of the axis, both go on; otherwise a region opens, and the finger that is behind goes on
    until the next ids can be kept again.
    """

    def in_step(i: int, j: int) -> bool:
        return max(a[i][0], b[j][0]) <= min(a[i][1], b[j][1])

    def kept(i: int, j: int) -> bool:
        # Equal ids are not enough: the same newline may come twice, at two places of the text. Both
        # of its edges must be in step.
        inside = i < len(mine) and j < len(other)
        return inside and mine[i] == other[j] and in_step(i, j) and in_step(i + 1, j + 1)

    found = []
    i = j = 0
    while i < len(mine) or j < len(other):
        if kept(i, j):
            i, j = i + 1, j + 1
            continue
        start, new_start = i, j
        while (i < len(mine) or j < len(other)) and not kept(i, j):
            # Intervals that end sooner lie further left, and a place within a changed piece, which
            # is nowhere, ends at its left edge: so neither finger can pass the end of a change.
            behind = i < len(mine) and (j == len(other) or a[i][1] <= b[j][1])
            i, j = (i + 1, j) if behind else (i, j + 1)
        found.append((start, i, new_start, j))
    return found


def _kind(
    pieces: Sequence[Piece], a: _Side, b: _Side, mine: tuple[int, int], other: tuple[int, int]
) -> Kind:
    kinds = {
        piece.change
        for index, piece in enumerate(pieces)
        if piece.change and (a.touched(index, mine) or b.touched(index, other))
    }
    if "json" in kinds:
        return "json"
    return "white_space" if kinds else "resplit"
