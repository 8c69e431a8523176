"""A run stops where nothing is graded any more: its figures would be of nothing.

Invariant: one graded episode starts the count of steps anew; an evaluation without one stops at
once, since before and after stand on it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cua_lab.errors import LabError
from cua_lab.play.causes import causes_of
from cua_lab.play.episode import Episode

SHOWN = 3
"""Causes that the message gives."""


@dataclass(slots=True)
class GradedSteps:
    """Counts steps in a row in which every episode failed."""

    limit: int
    """Such steps in a row that stop the run."""
    ungraded: int = 0

    def see(self, episodes: Sequence[Episode], what: str) -> None:
        """Take in a step's episodes; raises `LabError` at the limit."""
        if any(episode.status != "failed" for episode in episodes) or not episodes:
            self.ungraded = 0
            return
        self.ungraded += 1
        if self.ungraded >= self.limit:
            steps = f"{self.ungraded} steps in a row" if self.ungraded > 1 else "a step"
            raise LabError(_nothing_graded(episodes, f"{what}, {steps}"))


def check_graded(episodes: Sequence[Episode], what: str) -> None:
    """An evaluation needs one graded episode at least."""
    if episodes and all(episode.status == "failed" for episode in episodes):
        raise LabError(_nothing_graded(episodes, what))


def _nothing_graded(episodes: Sequence[Episode], what: str) -> str:
    causes = causes_of(episode.error for episode in episodes)
    shown = "; ".join(f"{count} times: {cause}" for count, cause in causes[:SHOWN])
    more = f"; and {len(causes) - SHOWN} other causes" if len(causes) > SHOWN else ""
    return (
        f"{what}: none of {len(episodes)} episodes could be graded ({shown}{more}). This is the"
        " environment or the server, not the policy: fix it, then go on with --resume"
    )
