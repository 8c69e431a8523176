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

from cua_lab.play.causes import kind_of
from cua_lab.play.episode import Episode
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.sample import Sample
from cua_lab.training.metrics import StepMetrics


@dataclass(slots=True)
class Tally:
    """Sums and extremes."""

    episodes: dict[str, int] = field(default_factory=dict)
    """By status."""
    causes: dict[str, int] = field(default_factory=dict)
    """Of the failed episodes on record, evaluations included, by `play.causes.kind_of`."""
    divergences: dict[str, int] = field(default_factory=dict)
    """By kind."""
    tokens: dict[str, Any] = field(default_factory=dict)
    """Of the sampled tokens that training was given: `TokenLedger.as_dict`."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By part: sft, prefill, decode, env, train, eval."""
    tokens_by_part: dict[str, int] = field(default_factory=dict)
    """For the rates: sft, prefill, decode, train."""
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

    def add_causes(self, episodes: Iterable[Episode]) -> list[str]:
        """Count why episodes failed; the ids of those that are the first of their cause."""
        first = []
        for episode in episodes:
            if episode.status != "failed":
                continue
            kind = kind_of(episode.error)
            if kind not in self.causes:
                first.append(episode.id)
            _add(self.causes, {kind: 1})
        return first

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
        self.add_tokens(train=metrics.tokens)

    def add_seconds(self, **parts: float) -> None:
        _add(self.seconds, parts)

    def add_tokens(self, **parts: int) -> None:
        _add(self.tokens_by_part, parts)

    def parts(self) -> dict[str, float]:
        """Seconds and tokens so far, as `prefill_s` and `prefill_tokens`."""
        seconds = {f"{part}_s": value for part, value in self.seconds.items()}
        tokens = {f"{part}_tokens": value for part, value in self.tokens_by_part.items()}
        return seconds | tokens

    def parts_since(self, before: dict[str, float]) -> dict[str, float]:
        """What was added to `parts` after it gave `before`."""
        return {name: value - before.get(name, 0) for name, value in self.parts().items()}

    def add(self, other: Tally) -> None:
        """What a stage has done that counted for itself; its memory is not added, it is another
        process's."""
        for name in ("episodes", "causes", "divergences", "seconds", "tokens_by_part"):
            _add(getattr(self, name), getattr(other, name))
        self.tokens = (TokenLedger(**self.tokens) + TokenLedger(**other.tokens)).as_dict()
        for name in ("logprob_gap_max", "first_ratio_max_error"):
            value = getattr(other, name)
            if value is not None:
                setattr(self, name, _largest(getattr(self, name), value))

    def add_memory(self, gib: float) -> None:
        self.memory_gib = _largest(self.memory_gib, gib)

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, record: dict[str, Any]) -> Tally:
        """From `record`; runs of format 2 and earlier say `work` for `tokens_by_part`."""
        return cls(**{_FORMER.get(name, name): value for name, value in record.items()})

    def rates(self) -> dict[str, float]:
        """Tokens a second of each part that has both."""
        return {
            part: tokens / self.seconds[part]
            for part, tokens in self.tokens_by_part.items()
            if self.seconds.get(part)
        }


_FORMER = {"work": "tokens_by_part"}


def _add(total: dict[str, Any], more: Any) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def _largest(so_far: float | None, value: float) -> float | None:
    """NaN is "not measured" and changes nothing."""
    if math.isnan(value):
        return so_far
    return value if so_far is None else max(so_far, value)
