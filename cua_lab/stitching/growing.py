"""A training sequence while it grows: stitching's first level.

    extend_with_prompt -> add_output -> extend_with_prompt -> ... -> finish

A prompt that repeats the last prompt and output adds its new ids as scaffold. One that does not
goes through `resync`, the second level: it is adopted, or it is a rewrite and the sequence ends.
Invariant: after each `add_output` the ids are exactly the last prompt and its output; mask,
log-probabilities and segments are of the same length and say where each id came from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.packed import first_difference, image_runs
from cua_lab.stitching.resync import Columns, resync
from cua_lab.stitching.stitched import Ending, Role, Segment, Stitched
from cua_lab.stitching.turn import Turn, WeightSpan

MissingLogprobs = Literal["raise", "mask"]


class UnusableTurn(ValueError):
    """One answer of an episode that cannot be trained on; the episode is a failure, not the run."""


class GrowingSequence:
    """A sequence of one episode, turn by turn."""

    def __init__(self, first_turn: int, turn: Turn, codec: TokenCodec) -> None:
        self.first_turn = self.last_turn = first_turn
        self.codec = codec
        self.turn = turn
        self.columns = Columns(response_start=len(turn.prompt_ids))
        self.sampled = 0
        self._add_prompt("prompt", first_turn, 0)

    def extend_with_prompt(self, number: int, turn: Turn) -> Ending | None:
        """Take in the next prompt; says why the sequence ends instead, if it does."""
        if self.turn.truncated or self.turn.finish_reason == "length":
            return "truncated"
        new_from = len(self.turn.prompt_ids) + len(self.turn.output_ids)
        difference = first_difference(self.turn, turn)
        if difference < new_from:  # the prompt does not repeat what is on record
            adopted = resync(
                self.columns,
                self.turn,
                turn.prompt_ids,
                number=number,
                difference=difference,
                codec=self.codec,
            )
            if adopted is None:
                return "rewrite"
            new_from = adopted
        self.turn, self.last_turn = turn, number
        self._mask_out(len(turn.prompt_ids) - new_from)
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
            self.columns.mask += [1] * count
            self.columns.logprobs += logprobs
        else:
            self._add_incomplete(number, logprobs, missing)
        at = len(turn.prompt_ids)
        whole = (WeightSpan(turn.weight_version or "", 0, count),)
        for span in turn.weight_spans or whole:
            if span.end > span.start:
                version = span.version or None
                segment = Segment("policy", at + span.start, at + span.end, number, version)
                self.columns.segments.append(segment)

    def finish(self, ending: Ending | None, dropped: dict[str, int] | None = None) -> Stitched:
        """The sequence as it stands."""
        columns = self.columns
        trained = sum(columns.mask)
        kept = sum(s.end - s.start for s in columns.segments if s.role == "policy")
        dropped = dropped or {}
        return Stitched(
            tokens=self.turn.prompt_ids + self.turn.output_ids,
            loss_mask=tuple(columns.mask),
            logprobs=tuple(columns.logprobs),
            response_start=columns.response_start,
            segments=tuple(columns.segments),
            divergences=tuple(columns.divergences),
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
            images=self.turn.images,
        )

    def _add_incomplete(
        self, number: int, logprobs: Sequence[float], missing: MissingLogprobs
    ) -> None:
        finite = [math.isfinite(value) for value in logprobs]
        if missing == "raise":
            raise UnusableTurn(
                f"turn {number} has {len(finite)} output ids but only {sum(finite)} finite"
                " log-probabilities; ask the server for `logprobs`, or stitch with"
                ' missing_logprobs="mask" to keep such tokens out of the loss'
            )
        self.columns.mask += map(int, finite)
        self.columns.logprobs += [
            value if ok else math.nan for value, ok in zip(logprobs, finite, strict=True)
        ]

    def _mask_out(self, count: int) -> None:
        self.columns.mask += [0] * count
        self.columns.logprobs += [math.nan] * count

    def _add_prompt(self, role: Role, number: int, start: int) -> None:
        """Segments of the current prompt from `start` on, images apart."""
        segments = self.columns.segments
        for image, end in image_runs(self.turn, start, self.codec.image_pad_id):
            if image > start:
                segments.append(Segment(role, start, image, number))
            segments.append(Segment("image", image, end, number))
            start = end
        if start < len(self.turn.prompt_ids):
            segments.append(Segment(role, start, len(self.turn.prompt_ids), number))
