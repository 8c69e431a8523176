"""What the gate did, for a run's records.

Invariant: without a gate there are no figures, rather than zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cua_lab.play.episode import Episode
from cua_lab.recipes.settings import SafetySettings
from cua_lab.safety.audit import AuditLog
from cua_lab.safety.confirmers import AlwaysDeny
from cua_lab.safety.gate import Gate
from cua_lab.safety.judged import GateCounts, Penalty, count
from cua_lab.safety.policy_file import load_policy


def gate_of(settings: SafetySettings, audit: Path | None = None) -> Gate | None:
    """The gate that a recipe asks for; `None` where it asks for none."""
    if settings.policy is None:
        return None
    return Gate(
        load_policy(settings.policy),
        AlwaysDeny(),
        audit=None if audit is None or not settings.audit else AuditLog(audit),
        penalty=Penalty(settings.risky_penalty, settings.refused_penalty),
    )


def counts_of(episodes: Sequence[Episode]) -> GateCounts | None:
    """Over these episodes; `None` where no gate stood."""
    judged = [episode.judged for episode in episodes if episode.judged is not None]
    return count(call for calls in judged for call in calls) if judged else None


def gate_record(episodes: Sequence[Episode]) -> dict[str, Any]:
    """The fields of a step."""
    counts = counts_of(episodes)
    if counts is None:
        return {}
    graded = [episode.penalty for episode in episodes if episode.reward is not None]
    return {
        "risky_proposed": counts.risky,
        "risky_confirmed": counts.confirmed,
        "risky_rejected": counts.rejected,
        "risky_denied": counts.denied,
        "penalty_mean": sum(graded) / len(graded) if graded else None,
    }


def risky_calls(episode: Episode) -> tuple[dict[str, Any], ...]:
    """The calls of an episode that were not simply allowed."""
    return tuple(call.to_json() for call in episode.judged or () if call.risky)
