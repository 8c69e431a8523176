"""Where a prompt does not repeat what is on record, and what the difference is.

`compare` walks the ids on record and the ids of the next prompt from a place where both agree. A
`Divergence` is one difference, for people and for counting. Invariant: a benign divergence replaces
`emitted_ids` by `rendered_ids` and changes no word and no value; anything else is a rewrite, and
nothing after it is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cua_lab.rollout.codec import TokenCodec
from cua_lab.rollout.rerender import Piece, changes

Kind = Literal["white_space", "json", "resplit", "rewrite"]
BENIGN: tuple[Kind, ...] = ("white_space", "json", "resplit")

_SAID: Mapping[str, str] = {
    "white_space": "white space changed",
    "json": "JSON was written another way with the same values",
    "resplit": "the same bytes were split into other ids",
    "rewrite": "the text changed",
}
_LOST = "the server dropped the text"


@dataclass(frozen=True, slots=True)
class Divergence:
    """One difference between what was sampled and what a later prompt says was sampled."""

    turn: int
    """The turn whose output was rendered differently."""
    index: int
    """Where `rendered_ids` stand in the stitched tokens; of a rewrite, where the first id differs.
    """
    kind: Kind
    emitted_ids: tuple[int, ...]
    rendered_ids: tuple[int, ...]
    emitted_text: str
    """Bytes that are no UTF-8 are shown as `\\xNN`, so no two different texts look alike."""
    rendered_text: str
    seen_in: int = -1
    """The turn whose prompt shows the change."""

    def explain(self) -> str:
        """One line for people."""
        said = _LOST if self.kind == "rewrite" and not self.rendered_text else _SAID[self.kind]
        outcome = "the sequence ends here" if self.kind == "rewrite" else "adopted with mask 0"
        return (
            f"turn {self.turn}, token {self.index}: {said}:"
            f" {_clipped(self.emitted_text)} -> {_clipped(self.rendered_text)}; {outcome}"
        )


@dataclass(frozen=True, slots=True)
class Region:
    """Ids [start, end) on record became ids [new_start, new_end) of the prompt."""

    start: int
    end: int
    new_start: int
    new_end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the ids on record."""

    regions: tuple[Region, ...]
    """Benign and in order; or the rewrite alone."""
    length: int
    """How many ids of the prompt stand for all ids on record; 0 after a rewrite."""

    @property
    def rewrite(self) -> Region | None:
        """The rewrite, if there is one."""
        return next((region for region in self.regions if region.kind == "rewrite"), None)


def text_of(ids: Sequence[int], codec: TokenCodec) -> str:
    """Ids as text, control ids by name."""
    parts = [codec.control[i].encode() if i in codec.control else codec.token_bytes(i) for i in ids]
    return b"".join(parts).decode("utf-8", errors="backslashreplace")


def compare(
    known: Sequence[int],
    prompt: Sequence[int],
    sampled: Sequence[tuple[int, int]],
    codec: TokenCodec,
) -> Comparison:
    """Compare the ids on record with a prompt from the same place on.

    Control ids are fixed points: they must come in the same order, and the text between two of them
    is compared as bytes. `sampled` are the ranges of `known` that the policy sampled: text without
    a sampled id may be split differently, but not change.
    """
    control = codec.control
    regions: list[Region] = []
    i = j = 0
    while i < len(known):
        end, new_end = _next_control(known, i, control), _next_control(prompt, j, control)
        if end == len(known) and new_end == len(prompt):
            new_end = _same_bytes_end(known[i:end], prompt, j, codec)
        span = Region(i, end, j, new_end, "rewrite")
        found = _span_regions(span, known, prompt, sampled, codec)
        if found is None:
            return Comparison((_trimmed(span, known, prompt),), 0)
        regions += found
        i, j = end, new_end
        if i < len(known):
            if j >= len(prompt) or known[i] != prompt[j]:
                after = Region(i, i + 1, j, min(j + 1, len(prompt)), "rewrite")
                return Comparison((after,), 0)
            i, j = i + 1, j + 1
    return Comparison(tuple(regions), j)


def _next_control(ids: Sequence[int], start: int, control: Mapping[int, str]) -> int:
    for position in range(start, len(ids)):
        if ids[position] in control:
            return position
    return len(ids)


def _same_bytes_end(
    known: Sequence[int], prompt: Sequence[int], start: int, codec: TokenCodec
) -> int:
    """Where `known` ends in a prompt without control ids: only the same bytes can tell."""
    left = sum(len(codec.token_bytes(i)) for i in known)
    position = start
    while left > 0 and position < len(prompt):
        left -= len(codec.token_bytes(prompt[position]))
        position += 1
    return position


def _span_regions(
    span: Region,
    known: Sequence[int],
    prompt: Sequence[int],
    sampled: Sequence[tuple[int, int]],
    codec: TokenCodec,
) -> list[Region] | None:
    """The benign changes within one span of text, or `None`."""
    mine, other = known[span.start : span.end], prompt[span.new_start : span.new_end]
    if mine == other:
        return []
    emitted = [codec.token_bytes(i) for i in mine]
    rendered = [codec.token_bytes(i) for i in other]
    pieces = changes(b"".join(emitted), b"".join(rendered))
    if pieces is None:
        return None
    is_sampled = any(start < span.end and end > span.start for start, end in sampled)
    if not is_sampled and any(piece.change for piece in pieces):
        return None
    return _Aligner(span, mine, other, emitted, rendered, pieces).regions()


def _trimmed(span: Region, known: Sequence[int], prompt: Sequence[int]) -> Region:
    """The rewritten span without the ids that agree at its start."""
    start, new_start = span.start, span.new_start
    while start < span.end and new_start < span.new_end and known[start] == prompt[new_start]:
        start, new_start = start + 1, new_start + 1
    return Region(start, span.end, new_start, span.new_end, "rewrite")


class _Aligner:
    """Finds the ids two renderings of one text share, and the regions between them.

    Both texts lie on one common axis: a piece of equal bytes is as long as its bytes, a changed
    piece is 1 long. A place between two ids lies at an interval of it: at a point as a rule, at
    [v, v + 1] where the changed piece there is empty on its side, nowhere within a changed piece.
    Where the two intervals meet, the renderings are in step.
    """

    def __init__(
        self,
        span: Region,
        mine: Sequence[int],
        other: Sequence[int],
        emitted: Sequence[bytes],
        rendered: Sequence[bytes],
        pieces: Sequence[Piece],
    ) -> None:
        self.span, self.mine, self.other = span, mine, other
        self.a = _places(emitted, [(p.emitted, p.change is None) for p in pieces])
        self.b = _places(rendered, [(p.rendered, p.change is None) for p in pieces])
        self.changed = _changed_places(pieces)

    def regions(self) -> list[Region]:
        found: list[Region] = []
        i = j = 0
        while i < len(self.mine) or j < len(self.other):
            if self._kept(i, j):
                i, j = i + 1, j + 1
                continue
            start, new_start = i, j
            i, j = self._step(i, j)
            while not (self._in_step(i, j) and self._settled(i, j)):
                i, j = self._step(i, j)
            found.append(self._region(start, i, new_start, j))
        return found

    def _in_step(self, i: int, j: int) -> bool:
        (low_a, high_a), (low_b, high_b) = self.a[i], self.b[j]
        return max(low_a, low_b) <= min(high_a, high_b)

    def _kept(self, i: int, j: int) -> bool:
        if i == len(self.mine) or j == len(self.other) or self.mine[i] != self.other[j]:
            return False
        return self._in_step(i + 1, j + 1)

    def _settled(self, i: int, j: int) -> bool:
        """A region closes where both texts go on with the same id, or both end."""
        return (i == len(self.mine) and j == len(self.other)) or self._kept(i, j)

    def _step(self, i: int, j: int) -> tuple[int, int]:
        """Advance the side that is behind."""
        behind = i < len(self.mine) and self.a[i][1] <= self.b[j][1]
        if behind or j == len(self.other):
            return i + 1, j
        return i, j + 1

    def _region(self, start: int, end: int, new_start: int, new_end: int) -> Region:
        low = max(self.a[start][0], self.b[new_start][0])
        high = min(self.a[end][1], self.b[new_end][1])
        kinds = {kind for place, kind in self.changed if low <= place and place + 1 <= high}
        kind: Kind = next((k for k in ("json", "white_space") if k in kinds), "resplit")
        at, new_at = self.span.start, self.span.new_start
        return Region(at + start, at + end, new_at + new_start, new_at + new_end, kind)


def _places(
    tokens: Sequence[bytes], pieces: Sequence[tuple[int, bool]]
) -> list[tuple[float, float]]:
    """The interval on the common axis before each id and after the last."""
    places: list[tuple[float, float]] = []
    piece = 0
    base = offset = start = 0  # axis place and byte offset where the piece starts
    for token in (*tokens, b""):
        while piece < len(pieces) and _passed(offset - start, pieces[piece][0]):
            start += pieces[piece][0]
            base += pieces[piece][0] if pieces[piece][1] else 1
            piece += 1
        low = high = float(base + offset - start)
        if offset > start and not pieces[piece][1]:
            low, high = base + 0.75, base + 0.25  # within a changed piece: nowhere
        while offset == start and piece < len(pieces) and pieces[piece][0] == 0:
            base, piece = base + 1, piece + 1
            high = float(base)
        places.append((low, high))
        offset += len(token)
    return places


def _passed(offset: int, length: int) -> bool:
    """Whether a piece of `length` lies wholly before `offset` bytes after its start."""
    return offset > length or (offset == length and length > 0)


def _changed_places(pieces: Sequence[Piece]) -> list[tuple[int, str]]:
    places: list[tuple[int, str]] = []
    base = 0
    for piece in pieces:
        if piece.change:
            places.append((base, piece.change))
        base += piece.emitted if piece.change is None else 1
    return places


def _clipped(text: str, limit: int = 60) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else shown[: limit - 2] + "…" + shown[-1]
