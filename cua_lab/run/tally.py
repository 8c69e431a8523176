"""What a run has done so far, added up over stages: episodes, tokens, divergences, seconds.

Invariant: a tally is plain data; it travels through `progress.json`, so a resumed run ends with the
sums of the whole run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from cua_lab.play.episode import Episode
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.sample import Sample
from cua_lab.training.metrics import StepMetrics


@dataclass(slots=True)
class Tally:
    """Sums and extremes."""

    episodes: dict[str, int] = field(default_factory=dict)
    """By status."""
    divergences: dict[str, int] = field(default_factory=dict)
    """By kind."""
    tokens: dict[str, Any] = field(default_factory=dict)
    """Of the sampled tokens that training was given: `TokenLedger.as_dict`."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By part: sft, prefill, decode, env, train, eval."""
    work: dict[str, int] = field(default_factory=dict)
    """Tokens by part, for the rates: sft, prefill, decode, train."""
    logprob_gap_max: float | None = None
    first_ratio_max_error: float | None = None
    memory_gib: float | None = None
    """Of several processes at once, at most: the sum of what each held at its peak."""

    def add_episodes(self, episodes: Iterable[Episode]) -> None:
        _add(self.episodes, Counter(episode.status for episode in episodes))

    def correct_episodes(self, counted: Iterable[Episode], judged: Iterable[Episode]) -> None:
        """Count episodes anew that training wrote off after they had been counted."""
        changes = Counter(episode.status for episode in judged)
        changes.subtract(episode.status for episode in counted)
        _add(self.episodes, {status: count for status, count in changes.items() if count})

    def add_samples(self, samples: Iterable[Sample]) -> None:
        ledger = TokenLedger(**self.tokens)
        for sample in samples:
            ledger += sample.stitched.ledger
            _add(self.divergences, Counter(d.kind for d in sample.stitched.divergences))
        self.tokens = ledger.as_dict()

    def add_step(self, metrics: StepMetrics) -> None:
        self.logprob_gap_max = _largest(self.logprob_gap_max, metrics.logprob_gap_max)
        self.first_ratio_max_error = _largest(self.first_ratio_max_error, metrics.ratio_first_error)
        self.add_seconds(train=metrics.seconds)
        self.add_work(train=metrics.tokens)

    def add_seconds(self, **parts: float) -> None:
        _add(self.seconds, parts)

    def add_work(self, **parts: int) -> None:
        _add(self.work, parts)

    def add_memory(self, gib: float) -> None:
        self.memory_gib = _largest(self.memory_gib, gib)

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def rates(self) -> dict[str, float]:
        """Tokens a second of each part that has both."""
        return {
            part: tokens / self.seconds[part]
            for part, tokens in self.work.items()
            if self.seconds.get(part)
        }


def _add(total: dict[str, Any], more: Any) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def _largest(so_far: float | None, value: float) -> float | None:
    """NaN is "not measured" and changes nothing."""
    if math.isnan(value):
        return so_far
    return value if so_far is None else max(so_far, value)
