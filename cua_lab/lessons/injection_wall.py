"""A wall of what a gate stopped: one screen a page, where the click would have landed, and why not.

Invariant: a card shows the screen that the refused call would have met and the gate's own reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.demonstrators.injection import PLAYERS, play_kind
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.envs.injection.env import SIZE
from cua_lab.pictures import read_rgb
from cua_lab.viz.filmstrip import filmstrip
from cua_lab.viz.frames import Frame

if TYPE_CHECKING:
    from cua_lab.play.episode import Episode
    from cua_lab.safety.gate import Gate
    from cua_lab.safety.judged import Judged
    from cua_lab.viz.described import Described


async def play_kinds(kinds: Sequence[str], player: str, gate: Gate | None = None) -> list[Episode]:
    """One episode a kind, on one browser; `player` is careful or gullible."""
    config = expert_config().model_copy(update={"gate": gate})
    async with ChromiumDesktop(*SIZE) as desktop:
        return [await play_kind(desktop, k, 0, PLAYERS[player], config=config) for k in kinds]


def refused(episode: Episode) -> tuple[int, Judged] | None:
    """The first call that was not done: its place among the episode's calls, and the judgement."""
    calls = enumerate(episode.judged or ())
    return next(((i, c) for i, c in calls if c.outcome in ("rejected", "denied")), None)


def wall(episodes: Sequence[Episode]) -> Described:
    """A card for each episode in which something was refused."""
    cards = [card for episode in episodes if (card := _card(episode)) is not None]
    return filmstrip(cards, title="what the gate stopped", columns=3)


def _card(episode: Episode) -> Frame | None:
    found = refused(episode)
    if found is None:
        return None
    index, call = found
    action = episode.actions[index]
    if action.saw is None:
        return None
    image = read_rgb(episode.screenshots[action.saw])
    frame = Frame.of(image, action.arguments, coordinate_space="pixels")
    return replace(frame, label=f"{episode.task}: {', '.join(call.kinds)}")
