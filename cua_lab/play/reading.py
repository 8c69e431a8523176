"""What a policy said of a screen, marked cell by cell against what was on it.

    thought "0030/0445/... 22 23 row"  +  reading "0030/0441/..."  ->  the cells that were said

A template whose screen is to be read tells it in `info["readings"]`: what a right transcript says
at the start and after each key. Invariant: a mark comes from the app's state alone, and a turn is
marked only where a transcript was due and the model answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cua_lab.play.episode import Episode


@dataclass(frozen=True, slots=True)
class Transcript:
    """One turn's thought beside what it should begin with."""

    thought: str
    reading: str
    """What a right transcript says; letters and digits are cells, the rest separates them."""

    @property
    def wrong(self) -> tuple[int, ...]:
        """Where in `reading` the thought says something else, or nothing."""
        pairs = zip_longest(self.reading, self.thought[: len(self.reading)])
        return tuple(i for i, (cell, said) in enumerate(pairs) if cell.isalnum() and cell != said)

    @property
    def cells(self) -> int:
        """How many there are to read."""
        return sum(map(str.isalnum, self.reading))

    @property
    def share(self) -> float:
        """Of the cells, those that were said right."""
        return 1 - len(self.wrong) / self.cells

    @property
    def exact(self) -> bool:
        """Whether all cells are right."""
        return not self.wrong


def transcripts(episode: Episode) -> tuple[Transcript | None, ...]:
    """One entry for each answer of an episode; `None` where there was nothing to read out.

    A screen is told by the number of keys that led to it.
    """
    readings = (episode.info or {}).get("readings")
    found: list[Transcript | None] = []
    keys = 0
    for action in episode.actions:
        due = _at(readings, keys)
        found.append(None if due is None else Transcript(action.thought, due))
        keys += action.keys
    return tuple(found)


def _at(readings: Sequence[str] | None, keys: int) -> str | None:
    if not isinstance(readings, Sequence) or keys >= len(readings):
        return None
    return readings[keys]
