"""Stitching's second level: a prompt that writes history another way, and what is kept of it.

The first level (`growing`) needs none of this: there a prompt repeats what is on record, or a new
sequence starts. Here one that does not is compared with the record (`divergence`, over `align` and
`rerender`), and where only the writing changed, the prompt's ids take the place of those on record.
A worked case: turn 0 said "Click it.\\n\\n<tool_call>…", and the prompt of turn 1 has one newline
less, so that id 382 (".\\n\\n") became 624 (".\\n"):

    on record   … assistant 198 | 2612  432  382  151657 … 151645
    prompt      … assistant 198 | 2612  432  624  151657 … 151645 | 198 151644 … (scaffold)
    compare     from the last control id on: one region, 382 -> 624, "white_space"
    afterwards
      ids                         2612  432  624  151657 … 151645
      mask                           1    1    0       1 …      1
      segment                      policy   resynced  policy
      off_context                                     ^ sampled after 382, standing after 624

What follows a changed place keeps its loss, but its log-probabilities are of another context: see
`Stitched.off_context`. A change of words or values is no such place: it is a rewrite, and ends the
sequence. Invariant: after `resync` the columns describe exactly the prompt's ids up to the place
that it returns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cua_lab.stitching.align import Region
from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.divergence import Divergence, compare, text_of
from cua_lab.stitching.stitched import Segment
from cua_lab.stitching.turn import Turn


@dataclass(slots=True)
class Columns:
    """What a growing sequence knows of its ids, beside the ids themselves."""

    response_start: int
    """Mask and log-probabilities begin here."""
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)


def resync(
    columns: Columns,
    record: Turn,
    prompt: tuple[int, ...],
    *,
    number: int,
    difference: int,
    codec: TokenCodec,
) -> int | None:
    """Adopt the prompt of turn `number` where it departs from the record at id `difference`.

    `record`: the last turn; its prompt and output are the ids so far. Returns where the prompt's
    new ids begin, or `None` after a rewrite, which is recorded and changes nothing else.
    """
    start = _last_control_before(record, difference, codec.control)
    sampled = _sampled_ranges(columns.segments, start)
    found = compare(_ids(record, start), prompt[start:], sampled, codec)
    regions = [_shifted(region, start) for region in found.regions]
    seen = [_divergence(region, columns, record, prompt, number, codec) for region in regions]
    if found.rewrite is None:
        columns.divergences = [_moved(d, regions) for d in columns.divergences]
        _take_prompt_ids(columns, regions, record_turn=number - 1)
    columns.divergences += seen
    return None if found.rewrite is not None else start + found.length


def _last_control_before(record: Turn, index: int, control: Mapping[int, str]) -> int:
    """Where to compare from: text must be read from a fixed point on."""
    prompt, output = record.prompt_ids, record.output_ids
    for position in range(index - 1, -1, -1):
        inside = position - len(prompt)
        if (output[inside] if inside >= 0 else prompt[position]) in control:
            return position
    return 0


def _ids(record: Turn, start: int, end: int | None = None) -> tuple[int, ...]:
    """Ids [start, end) of the record; the prompt is not copied where only output is meant."""
    shared = len(record.prompt_ids)
    if start >= shared:
        return record.output_ids[start - shared : None if end is None else end - shared]
    return (record.prompt_ids[start:] + record.output_ids)[: None if end is None else end - start]


def _sampled_ranges(segments: Sequence[Segment], start: int) -> list[tuple[int, int]]:
    """Ranges of sampled ids, counted from `start`; what replaced sampled ids counts as sampled."""
    ranges = []
    for segment in reversed(segments):
        if segment.end <= start:
            break
        if segment.role in ("policy", "resynced"):
            ranges.append((max(0, segment.start - start), segment.end - start))
    return ranges


def _shifted(region: Region, start: int) -> Region:
    """A region counted from the first id of all."""
    return Region(
        region.start + start,
        region.end + start,
        region.new_start + start,
        region.new_end + start,
        region.kind,
    )


def _divergence(
    region: Region,
    columns: Columns,
    record: Turn,
    prompt: tuple[int, ...],
    number: int,
    codec: TokenCodec,
) -> Divergence:
    """A region for the record, with its place in the ids as they will be."""
    emitted = _ids(record, region.start, region.end)
    rendered = prompt[region.new_start : region.new_end]
    return Divergence(
        turn=_owner(columns.segments, region.start, region.end, number - 1),
        index=region.new_start,
        kind=region.kind,
        emitted_ids=emitted,
        rendered_ids=rendered,
        emitted_text=text_of(emitted, codec),
        rendered_text=text_of(rendered, codec),
        seen_in=number,
    )


def _moved(divergence: Divergence, regions: Sequence[Region]) -> Divergence:
    """An older divergence, where its ids are now: changes in front of it moved it, each by its own
    growth, and a change over it put other ids in its place."""
    index = divergence.index
    before = bisect_right([region.start for region in regions], index) - 1
    if before < 0:
        return divergence
    last = regions[before]
    inside = index < last.end
    return replace(divergence, index=last.new_start if inside else index + last.new_end - last.end)


def _take_prompt_ids(columns: Columns, regions: Sequence[Region], *, record_turn: int) -> None:
    """Put the prompt's ids in the place of those on record."""
    opened = columns.response_start - regions[0].start
    if (
        opened > 0
    ):  # adopted ids reach back over the end of the first prompt: they count as response
        columns.mask[:0] = [0] * opened
        columns.logprobs[:0] = [math.nan] * opened
        columns.response_start = regions[0].start
    for region in reversed(regions):  # from the end, so that what is still to come has not moved
        low = region.start - columns.response_start
        high = region.end - columns.response_start
        width = region.new_end - region.new_start
        columns.mask[low:high] = [0] * width
        columns.logprobs[low:high] = [math.nan] * width
    _splice_segments(columns.segments, regions, record_turn)


def _splice_segments(segments: list[Segment], regions: Sequence[Region], record_turn: int) -> None:
    """Cut `resynced` segments into the list, and move what lies between and behind them."""
    first = regions[0].start
    kept = len(segments)
    # What ends in front of the first change stays: as a rule all but the last few segments.
    while kept and segments[kept - 1].end > first:
        kept -= 1
    old = segments[kept:]
    del segments[kept:]
    # The first of them may begin in front of the change: that part is copied as it is.
    at = min(first, old[0].start) if old else first
    shift = 0  # how far the ids behind the changes so far have moved
    for region in regions:
        segments += _copied(old, at, region.start, shift)
        at = region.end
        # A deletion leaves no ids behind and so no segment; the two sides meet as two segments,
        # which is how `off_context` can tell the side behind it.
        if region.new_end > region.new_start:
            turn = _owner(old, region.start, region.end, record_turn)
            segments.append(Segment("resynced", region.new_start, region.new_end, turn))
        shift = region.new_end - region.end
    segments += _copied(old, at, math.inf, shift)


def _copied(old: Sequence[Segment], low: int, high: float, shift: int) -> list[Segment]:
    """The parts of segments within [low, high), moved."""
    clipped = ((s, max(s.start, low), int(min(s.end, high))) for s in old)
    return [
        replace(segment, start=start + shift, end=end + shift)
        for segment, start, end in clipped
        if end > start
    ]


def _owner(segments: Sequence[Segment], low: int, high: int, otherwise: int) -> int:
    """The turn whose output ids [low, high) are, or are next to."""
    touching = [s for s in segments if s.start <= high and s.end >= low]
    sampled = [s.turn for s in touching if s.role in ("policy", "resynced")]
    return sampled[0] if sampled else (touching[0].turn if touching else otherwise)
