"""The failures of a run in its report: how often each cause, and the first of each as a film strip.

Invariant: a failed episode measures nothing and stands in no other figure of the page; here each
one on record is counted exactly once, under its cause.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cua_lab.pictures import open_rgb
from cua_lab.play.causes import causes_of, kind_of
from cua_lab.records import EpisodeRow
from cua_lab.viz.frames import Frame
from cua_lab.viz.report_parts import Table, table
from cua_lab.viz.report_strips import Strip, strip_of
from cua_lab.viz.runfiles import Run, episode_frames

CAUSES = 12
"""Causes that are shown; a run that meets more has one fault of many names."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The section; a run without a failed episode has none."""

    failed: int
    played: int
    causes: Table
    strips: tuple[Strip, ...]
    more: int
    """Causes that are left out."""


def failures(run: Run) -> Failures | None:
    """What failed, by cause, the most frequent first."""
    failed = [episode for episode in run.episodes if episode.status == "failed"]
    if not failed:
        return None
    causes = causes_of(episode.error for episode in failed)
    shown = causes[:CAUSES]
    mine = [[e for e in failed if kind_of(e.error) == kind_of(words)] for _, words in shown]
    rows = [
        [words, str(count), _where(episodes)]
        for (count, words), episodes in zip(shown, mine, strict=True)
    ]
    return Failures(
        failed=len(failed),
        played=len(run.episodes),
        causes=table(["cause", "episodes", "where"], rows),
        strips=tuple(
            _strip(run, episodes, words) for (_, words), episodes in zip(shown, mine, strict=True)
        ),
        more=len(causes) - len(shown),
    )


def _where(episodes: list[EpisodeRow]) -> str:
    places = Counter(f"{episode.task} {episode.phase}" for episode in episodes)
    return ", ".join(f"{place} {count}" for place, count in places.most_common(3))


def _strip(run: Run, episodes: list[EpisodeRow], words: str) -> Strip:
    """The first that has screenshots; the first of a cause was pictured if it got that far."""
    title = f"First of: {words}"
    for episode in episodes:
        frames = list(episode_frames(run, episode))
        if not frames and episode.end is not None:
            frames = [Frame(open_rgb(run.path / episode.end), label="it got no further")]
        if frames:
            return strip_of(f"{title} ({episode.episode})", frames)
    return Strip(title)
