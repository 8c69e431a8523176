"""A training sequence while it grows.

    follow(prompt) -> add_output(turn) -> follow(prompt) -> ... -> finish()

Invariant: after each `add_output` the ids are exactly the last prompt and its output; mask,
log-probabilities and segments are of the same length and say where each id came from.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from cua_lab.stitching.align import Region
from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.divergence import Comparison, Divergence, compare, text_of
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.packed import first_difference, image_runs
from cua_lab.stitching.stitched import Ending, Role, Segment, Stitched
from cua_lab.stitching.turn import Turn, WeightSpan

MissingLogprobs = Literal["raise", "mask"]


class GrowingSequence:
    """A sequence of one episode, turn by turn."""

    def __init__(self, first_turn: int, turn: Turn, codec: TokenCodec) -> None:
        self.first_turn = self.last_turn = first_turn
        self.codec = codec
        self.turn = turn
        self.response_start = len(turn.prompt_ids)
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.segments: list[Segment] = []
        self.divergences: list[Divergence] = []
        self.sampled = 0
        self._add_prompt("prompt", first_turn, 0)

    def follow(self, number: int, turn: Turn) -> Ending | None:
        """Take in the next prompt; says why the sequence ends instead, if it does."""
        if self.turn.truncated or self.turn.finish_reason == "length":
            return "truncated"
        prompt = turn.prompt_ids
        new_from = len(self.turn.prompt_ids) + len(self.turn.output_ids)
        difference = first_difference(self.turn, turn)
        if difference < new_from:
            start = self._last_control_before(difference)
            found = self._compare(start, prompt)
            if found.rewrite is not None:
                self._record(found.regions, start, number, prompt)
                return "rewrite"
            self._adopt(found.regions, start, number, prompt)
            new_from = start + found.length
        self.turn, self.last_turn = turn, number
        self._mask_out(len(prompt) - new_from)
        self._add_prompt("scaffold", number, new_from)
        return None

    def add_output(self, number: int, turn: Turn, missing: MissingLogprobs) -> None:
        """Take in what the policy sampled."""
        count = len(turn.output_ids)
        self.sampled += count
        logprobs = turn.output_logprobs
        if logprobs is None:
            logprobs = (math.nan,) * count
        if all(map(math.isfinite, logprobs)):
            self.mask += [1] * count
            self.logprobs += logprobs
        else:
            self._add_incomplete(number, logprobs, missing)
        at = len(turn.prompt_ids)
        whole = (WeightSpan(turn.weight_version or "", 0, count),)
        for span in turn.weight_spans or whole:
            if span.end > span.start:
                version = span.version or None
                segment = Segment("policy", at + span.start, at + span.end, number, version)
                self.segments.append(segment)

    def finish(self, ending: Ending | None, dropped: dict[str, int] | None = None) -> Stitched:
        trained = sum(self.mask)
        kept = sum(s.end - s.start for s in self.segments if s.role == "policy")
        dropped = dropped or {}
        return Stitched(
            tokens=self.turn.prompt_ids + self.turn.output_ids,
            loss_mask=tuple(self.mask),
            logprobs=tuple(self.logprobs),
            response_start=self.response_start,
            segments=tuple(self.segments),
            divergences=tuple(self.divergences),
            ledger=TokenLedger(
                sampled=self.sampled + sum(dropped.values()),
                trained=trained,
                masked=kept - trained,
                resynced=self.sampled - kept,
                dropped=dropped,
            ),
            first_turn=self.first_turn,
            last_turn=self.last_turn,
            ended_by=ending,
        )

    def _add_incomplete(
        self, number: int, logprobs: Sequence[float], missing: MissingLogprobs
    ) -> None:
        finite = [math.isfinite(value) for value in logprobs]
        if missing == "raise":
            raise ValueError(
                f"turn {number} has {len(finite)} output ids but only {sum(finite)} finite"
                " log-probabilities; ask the server for `logprobs`, or stitch with"
                ' missing_logprobs="mask" to keep such tokens out of the loss'
            )
        self.mask += map(int, finite)
        self.logprobs += [v if ok else math.nan for v, ok in zip(logprobs, finite, strict=True)]

    def _mask_out(self, count: int) -> None:
        self.mask += [0] * count
        self.logprobs += [math.nan] * count

    def _add_prompt(self, role: Role, number: int, start: int) -> None:
        """Segments of the current prompt from `start` on, images apart."""
        for image, end in image_runs(self.turn, start, self.codec.image_pad_id):
            if image > start:
                self.segments.append(Segment(role, start, image, number))
            self.segments.append(Segment("image", image, end, number))
            start = end
        if start < len(self.turn.prompt_ids):
            self.segments.append(Segment(role, start, len(self.turn.prompt_ids), number))

    def _last_control_before(self, index: int) -> int:
        """Where to compare from: text must be read from a fixed point on."""
        control, prompt, output = self.codec.control, self.turn.prompt_ids, self.turn.output_ids
        for position in range(index - 1, -1, -1):
            inside = position - len(prompt)
            if (output[inside] if inside >= 0 else prompt[position]) in control:
                return position
        return 0

    def _compare(self, start: int, prompt: tuple[int, ...]) -> Comparison:
        known = self._tail(start)
        sampled = []
        for segment in reversed(self.segments):
            if segment.end <= start:
                break
            if segment.role in ("policy", "resynced"):
                sampled.append((max(0, segment.start - start), segment.end - start))
        return compare(known, prompt[start:], sampled, self.codec)

    def _tail(self, start: int) -> tuple[int, ...]:
        shared = len(self.turn.prompt_ids)
        if start >= shared:
            return self.turn.output_ids[start - shared :]
        return self.turn.prompt_ids[start:] + self.turn.output_ids

    def _adopt(
        self, regions: Sequence[Region], start: int, number: int, prompt: tuple[int, ...]
    ) -> None:
        """Put the prompt's ids in the place of those on record."""
        self._move_divergences(regions, start)
        self._record(regions, start, number, prompt)
        self._open_prompt(start + regions[0].start)
        for region in reversed(regions):
            low = start + region.start - self.response_start
            high = start + region.end - self.response_start
            width = region.new_end - region.new_start
            self.mask[low:high] = [0] * width
            self.logprobs[low:high] = [math.nan] * width
        self._splice_segments(regions, start)

    def _move_divergences(self, regions: Sequence[Region], start: int) -> None:
        """An older output changed its length: what is on record behind it moves."""
        end = start + regions[-1].end
        grown = sum((r.new_end - r.new_start) - (r.end - r.start) for r in regions)
        self.divergences = [
            replace(d, index=d.index + grown) if d.index >= end else d for d in self.divergences
        ]

    def _open_prompt(self, index: int) -> None:
        """Adopted ids may reach back over the end of the first prompt: count them as response."""
        opened = self.response_start - index
        if opened > 0:
            self.mask[:0] = [0] * opened
            self.logprobs[:0] = [math.nan] * opened
            self.response_start = index

    def _splice_segments(self, regions: Sequence[Region], start: int) -> None:
        first = start + regions[0].start
        kept = len(self.segments)
        while kept and self.segments[kept - 1].end > first:
            kept -= 1
        old = self.segments[kept:]
        del self.segments[kept:]
        at = min(first, old[0].start) if old else first
        shift = 0
        for region in regions:
            self._copy_segments(old, at, start + region.start, shift)
            at = start + region.end
            turn = self._owner(old, start + region.start, at)
            low, high = start + region.new_start, start + region.new_end
            if high > low:
                self.segments.append(Segment("resynced", low, high, turn))
            shift = high - at
        self._copy_segments(old, at, math.inf, shift)

    def _copy_segments(self, old: list[Segment], low: int, high: float, shift: int) -> None:
        for segment in old:
            start, end = max(segment.start, low), int(min(segment.end, high))
            if end > start:
                self.segments.append(replace(segment, start=start + shift, end=end + shift))

    def _owner(self, old: list[Segment], low: int, high: int) -> int:
        """The turn whose output ids [low, high) are, or are next to."""
        touching = [s for s in old if s.start <= high and s.end >= low]
        sampled = [s.turn for s in touching if s.role in ("policy", "resynced")]
        return sampled[0] if sampled else (touching[0].turn if touching else self.last_turn)

    def _record(
        self, regions: Sequence[Region], start: int, number: int, prompt: tuple[int, ...]
    ) -> None:
        """Keep the differences; a benign one with its place in the tokens as they will be."""
        known = self._tail(start)
        for region in regions:
            emitted = known[region.start : region.end]
            rendered = prompt[start + region.new_start : start + region.new_end]
            self.divergences.append(
                Divergence(
                    turn=self._owner(self.segments, start + region.start, start + region.end),
                    index=start + region.new_start,
                    kind=region.kind,
                    emitted_ids=emitted,
                    rendered_ids=rendered,
                    emitted_text=text_of(emitted, self.codec),
                    rendered_text=text_of(rendered, self.codec),
                    seen_in=number,
                )
            )
