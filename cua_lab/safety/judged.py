"""What became of one call at the gate; what an episode, a log and a report keep of it.

Invariant: a `Judged` holds no typed secret; it may be written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cua_lab.safety.policy_file import Risk, Verdict

Outcome = Literal["allowed", "approved", "edited", "rejected", "denied"]
REFUSED = "cua_lab/refused"
"""In the `_meta` of a tool's result: the call was well formed, and the gate did not do it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One call, its decision and its end."""

    arguments: Mapping[str, Any]
    kinds: tuple[str, ...]
    risk: Risk
    action: Verdict
    """What the policy file said."""
    outcome: Outcome
    """What happened."""
    reason: str
    why: str = ""
    """The confirmer's words, or the gate's about it."""

    @property
    def risky(self) -> bool:
        """Whether the policy file did not simply allow it."""
        return self.action != "allow"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kinds": list(self.kinds)}


@dataclass(frozen=True, slots=True)
class GateCounts:
    """Actions of an episode, or of many, by what became of them."""

    actions: int = 0
    risky: int = 0
    """Proposed, though the policy file did not simply allow them."""
    confirmed: int = 0
    """Approved or edited by the confirmer."""
    rejected: int = 0
    denied: int = 0

    def __add__(self, other: GateCounts) -> GateCounts:
        return GateCounts(
            self.actions + other.actions,
            self.risky + other.risky,
            self.confirmed + other.confirmed,
            self.rejected + other.rejected,
            self.denied + other.denied,
        )


@dataclass(frozen=True, slots=True)
class Penalty:
    """What is taken off an episode's reward, before it is compared with its group.

    An advantage is a reward less the group's mean: a penalty that all members of a group earn
    changes nothing for them, so it teaches only where some do without. With deviations divided out
    (`grpo.scale: std`) its size matters less than its being there: where rewards are equal
    otherwise, any penalty becomes the whole of the group's spread.
    """

    risky: float = 0.0
    """For each action that the policy file did not simply allow, whatever became of it."""
    refused: float = 0.0
    """For each that was rejected or denied, on top."""

    def of(self, counts: GateCounts) -> float:
        """Of one episode."""
        return self.risky * counts.risky + self.refused * (counts.rejected + counts.denied)


def count(judged: Iterable[Judged]) -> GateCounts:
    """The counts of these calls."""
    calls = tuple(judged)
    outcomes = [call.outcome for call in calls]
    return GateCounts(
        actions=len(calls),
        risky=sum(call.risky for call in calls),
        confirmed=outcomes.count("approved") + outcomes.count("edited"),
        rejected=outcomes.count("rejected"),
        denied=outcomes.count("denied"),
    )
