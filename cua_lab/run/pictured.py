"""Which evaluated episodes keep their screenshots for the film strips.

    before GRPO: up to 64 starts, misses first ──▶ after GRPO: 16 of them, those first that gained

Which starts GRPO teaches to hit is known only when it has ended, so more are kept before than are
shown. Invariant: the choice is a function of the run's records, so a resumed run makes the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cua_lab.play.episode import Episode

KEPT_BEFORE = 64
"""Start states whose screenshots are kept before GRPO."""
PICTURED = 16
"""Of those, how many are pictured after it too."""


def kept_before(episodes: Sequence[Episode], variants: Sequence[str]) -> set[str]:
    """Misses first, as many of each variant."""
    return _first(sorted(episodes, key=_worth), variants, KEPT_BEFORE)


def kept_after(
    episodes: Sequence[Episode], before: Mapping[str, float], variants: Sequence[str]
) -> set[str]:
    """Of the starts that have pictures from before, those first that gained most.

    `before`: by episode, what it was worth, for those with pictures.
    """
    both = [e for e in episodes if e.id in before and e.reward is not None]
    return _first(sorted(both, key=lambda e: before[e.id] - _worth(e)), variants, PICTURED)


def by_turn(saved: Sequence[str], episode: Episode) -> tuple[list[str | None], str | None]:
    """For each turn the picture of the screen that it saw, then of one that nobody answered.

    `saved`: a name for each of the episode's screenshots. A refused call brings none, so that two
    turns may have seen the same.
    """
    saw = [action.saw for action in episode.actions]
    answered = not saved or len(saved) - 1 in saw
    return [None if n is None else saved[n] for n in saw], None if answered else saved[-1]


def _first(ordered: Iterable[Episode], variants: Sequence[str], most: int) -> set[str]:
    room = dict.fromkeys(variants, max(1, most // len(variants)))
    chosen: set[str] = set()
    for episode in ordered:
        if room.get(episode.task, 0) > 0:
            room[episode.task] -= 1
            chosen.add(episode.id)
    return chosen


def _worth(episode: Episode) -> float:
    """Misses first, then hits; failed episodes last."""
    return worth(episode.reward, episode.success)


def worth(reward: float | None, success: bool | None) -> float:
    """Success where there is one, else the reward; infinite where neither was measured."""
    if reward is None:
        return math.inf
    return reward if success is None else float(success)
