"""Where every sampled token went.

Invariant: sampled = trained + masked + resynced + dropped, checked where a ledger is built, so a
token cannot get lost without a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenLedger:
    """Counts of sampled tokens; ledgers of parts and episodes add up."""

    sampled: int = 0
    trained: int = 0
    """Carry loss."""
    masked: int = 0
    """Kept, but without a log-probability from the server."""
    resynced: int = 0
    """Replaced by the ids of their re-rendering, which carry no loss."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Reason -> tokens of turns that are in no sequence."""

    def __post_init__(self) -> None:
        parts = self.trained + self.masked + self.resynced + sum(self.dropped.values())
        if parts != self.sampled:
            raise ValueError(
                f"{self.sampled} tokens were sampled but {parts} are accounted for:"
                f" {self.as_dict()}"
            )

    def __add__(self, other: TokenLedger) -> TokenLedger:
        return TokenLedger(
            self.sampled + other.sampled,
            self.trained + other.trained,
            self.masked + other.masked,
            self.resynced + other.resynced,
            dict(Counter(self.dropped) + Counter(other.dropped)),
        )

    def as_dict(self) -> dict[str, Any]:
        """For a report or a JSON line."""
        return {
            "sampled": self.sampled,
            "trained": self.trained,
            "masked": self.masked,
            "resynced": self.resynced,
            "dropped": dict(self.dropped),
        }


def total(ledgers: Iterable[TokenLedger]) -> TokenLedger:
    """The sum of any number of ledgers."""
    result = TokenLedger()
    for ledger in ledgers:
        result += ledger
    return result
