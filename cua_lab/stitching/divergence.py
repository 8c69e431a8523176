"""Where a prompt does not repeat what is on record, and what the difference is.

`compare` walks the ids on record and the ids of the next prompt from a place where both agree. A
`Divergence` is one difference, for people and for counting. Invariant: a benign divergence replaces
`emitted_ids` by `rendered_ids` and changes no word and no value; anything else is a rewrite, and
nothing after it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cua_lab.stitching.align import Kind, Region, align
from cua_lab.stitching.codec import TokenCodec, UnownedId
from cua_lab.stitching.rerender import changes

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
    """Ids as text, control ids by name, ids that no token owns by number."""
    return b"".join(_shown(i, codec) for i in ids).decode("utf-8", errors="backslashreplace")


def _shown(token_id: int, codec: TokenCodec) -> bytes:
    if token_id in codec.control:
        return codec.control[token_id].encode()
    try:
        return codec.token_bytes(token_id)
    except UnownedId:
        return b"<id %d, which no token owns>" % token_id


def compare(
    known: Sequence[int],
    prompt: Sequence[int],
    sampled: Sequence[tuple[int, int]],
    codec: TokenCodec,
) -> Comparison:
    """Compare the ids on record with a prompt from the same place on.

    Control ids are fixed points: they must come in the same order, and the text between two of them
    is compared as bytes. `sampled` are the ranges of `known` that the policy sampled: text without
    a sampled id may be split differently, but not change. An id that no token owns has no bytes to
    compare: where a prompt does not repeat it, that is a rewrite.
    """
    control = codec.control
    regions: list[Region] = []
    i = j = 0
    # One span of text and the control id behind it at a time, in step on both sides.
    while i < len(known):
        end, new_end = _next_control(known, i, control), _next_control(prompt, j, control)
        # Text with no control id behind it on either side: nothing but its bytes says where the
        # record ends in the prompt.
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
    left = sum(_width(i, codec) for i in known)
    position = start
    while left > 0 and position < len(prompt):
        left -= _width(prompt[position], codec)
        position += 1
    return position


def _width(token_id: int, codec: TokenCodec) -> int:
    try:
        return len(codec.token_bytes(token_id))
    except UnownedId:
        return 0


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
    try:
        emitted, rendered = list(map(codec.token_bytes, mine)), list(map(codec.token_bytes, other))
    except UnownedId:
        return None
    pieces = changes(b"".join(emitted), b"".join(rendered))
    if pieces is None:
        return None
    own = [any(start <= i < end for start, end in sampled) for i in range(span.start, span.end)]
    if not any(own) and any(piece.change for piece in pieces):
        return None
    at = (span.start, span.new_start)
    return align(mine, other, emitted, rendered, pieces, at=at, sampled=own)


def _trimmed(span: Region, known: Sequence[int], prompt: Sequence[int]) -> Region:
    """The rewritten span without the ids that agree at its start."""
    start, new_start = span.start, span.new_start
    while start < span.end and new_start < span.new_end and known[start] == prompt[new_start]:
        start, new_start = start + 1, new_start + 1
    return Region(start, span.end, new_start, span.new_end, "rewrite")


def _clipped(text: str, limit: int = 60) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else shown[: limit - 2] + "…" + shown[-1]
