"""One training sequence: what the policy saw and did, token for token.

A `Stitched` is ids, and over the ids from `response_start` on a loss mask and log-probabilities;
`segments` say who put each run of ids there. Invariants, checked in the constructor: the lengths
agree; the segments tile the ids; exactly the masked-in positions have a finite log-probability, the
others NaN; the mask's sum is what the ledger counts as trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import compress
from typing import Literal

from cua_lab.stitching.divergence import Divergence
from cua_lab.stitching.ledger import TokenLedger

Role = Literal["prompt", "policy", "scaffold", "image", "resynced"]
Ending = Literal["rewrite", "truncated", "too_long"]


@dataclass(frozen=True, slots=True)
class Segment:
    """Ids [start, end) came from one source."""

    role: Role
    """`prompt`: the first prompt; `policy`: sampled; `scaffold`: what a later prompt added;
    `image`: the pads of one image; `resynced`: adopted from a re-rendering of sampled ids."""
    start: int
    end: int
    turn: int
    """The turn whose prompt or output it is; of `resynced`, the turn whose output it replaces."""
    weight_version: str | None = None
    """The weights that sampled a `policy` segment, where the server says."""


@dataclass(frozen=True, slots=True)
class Stitched:
    """One sequence of an episode."""

    tokens: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """Over tokens[response_start:]; 1 where the policy sampled the id and it is kept."""
    logprobs: tuple[float, ...]
    """Over tokens[response_start:]; NaN where the mask is 0."""
    response_start: int
    segments: tuple[Segment, ...]
    divergences: tuple[Divergence, ...] = ()
    ledger: TokenLedger = field(default_factory=TokenLedger)
    first_turn: int = 0
    """The sequence covers turns first_turn..last_turn of its episode."""
    last_turn: int = 0
    ended_by: Ending | None = None
    """Why the sequence ends before the episode does; `None` where it does not."""
    images: tuple[str, ...] | None = None
    """The `image_key` of each image in it, in order; `None` where the requests were not kept."""

    def __post_init__(self) -> None:
        self._check_lengths()
        self._check_tiling()
        self._check_logprobs()

    def _check_lengths(self) -> None:
        response = len(self.tokens) - self.response_start
        for name in ("loss_mask", "logprobs"):
            entries = len(getattr(self, name))
            if entries != response:
                raise ValueError(
                    f"{name} has {entries} entries but the response has {response} tokens"
                    f" (turns {self.first_turn}..{self.last_turn}); both start at response_start"
                )

    def _check_tiling(self) -> None:
        at = 0
        for segment in self.segments:
            if segment.start != at or segment.end <= segment.start:
                raise ValueError(
                    f"a {segment.role} segment of turn {segment.turn} covers"
                    f" [{segment.start}, {segment.end}) where the next must start at {at}"
                )
            at = segment.end
        if at != len(self.tokens):
            raise ValueError(f"the segments end at {at} but there are {len(self.tokens)} tokens")

    def _check_logprobs(self) -> None:
        trained = sum(self.loss_mask)
        if trained != self.ledger.trained:
            raise ValueError(
                f"the mask lets {trained} tokens in but {self.ledger.trained} were counted"
            )
        if not all(map(math.isfinite, compress(self.logprobs, self.loss_mask))):
            pairs = enumerate(zip(self.loss_mask, self.logprobs, strict=True))
            bad, value = next((i, lp) for i, (m, lp) in pairs if m and not math.isfinite(lp))
            raise ValueError(
                f"token {self.response_start + bad} carries loss but its log-probability is {value}"
            )
        absent = sum(map(math.isnan, self.logprobs))
        if absent != len(self.logprobs) - trained:
            raise ValueError(
                f"{len(self.logprobs) - trained} positions are masked out but {absent} have NaN;"
                " a masked-out position carries no log-probability"
            )

    @property
    def weight_versions(self) -> tuple[str, ...]:
        """The versions of the weights that sampled it, in order; several if they changed."""
        named = (s.weight_version for s in self.segments if s.weight_version is not None)
        return tuple(dict.fromkeys(named))

    @property
    def off_context(self) -> tuple[tuple[int, int], ...]:
        """Spans [start, end) of sampled ids that now follow adopted ones.

        They carry loss, but they were sampled after the ids that a later prompt replaced: their
        log-probabilities are of another context, and only approximate in this one. A prompt that
        leaves ids out adopts none, and what follows begins AT the divergence: hence `<=`.
        """
        adopted = [d for d in self.divergences if d.kind != "rewrite"]
        return tuple(
            (segment.start, segment.end)
            for segment in self.segments
            if segment.role == "policy"
            and any(d.index <= segment.start and segment.turn < d.seen_in for d in adopted)
        )
