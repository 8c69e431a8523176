"""Scripted players for the browser's templates: what the lab's players do, recorded on the page.

Invariant: demo number `index` has the lab's start and the lab's calls; its screens are the page's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cua_lab.demonstrators import lab
from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.demonstrators.lab import random_player
from cua_lab.demonstrators.recorder import Recorder, demo_of
from cua_lab.envs.browser.env import NAME, build_on, page_url
from cua_lab.envs.lab.blind import best_blind
from cua_lab.errors import LabError
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport

if TYPE_CHECKING:
    from cua_lab.demonstrators.demos import Demo, DemoRequest, GamePlayer
    from cua_lab.demonstrators.demos import Demonstrator as Demonstrator
    from cua_lab.desktop.chromium import ChromiumDesktop

__all__ = ["best_blind", "demonstrator", "random_player"]


class RecordedGame:
    """The lab's 2048 player on the page: its key lists, turn by turn."""

    def __init__(self, player: GamePlayer, args: Mapping[str, Any]) -> None:
        self._player, self._args = player, dict(args)

    async def record(self, desktop: ChromiumDesktop, index: int) -> Demo:
        """Demo number `index`, played on this desktop."""
        from hud.eval import LocalRuntime, Task

        player = self._player
        seed, lists = player.script(index)
        calls = iter({"action": "press", "keys": keys} for keys in lists)
        episode = await play(
            Task(
                env=NAME,
                id="2048-score",
                args={**self._args, "seed": seed, "turns": len(lists)},
                slug="2048-score",
            ),
            expert_config(max_keys_per_call=player.max_keys).model_copy(
                update={"max_steps": len(lists)}
            ),
            ScriptedTransport(lambda _: next(calls)),
            runtime=LocalRuntime(lambda task: build_on(desktop)),
            id=f"demo-{index}",
            group="demo",
        )
        if episode.status == "failed":
            raise LabError(f"demonstration {index} of 2048 failed: {episode.error}")
        return demo_of(player.prompt, player.task, episode)


def demonstrator(asked: DemoRequest) -> Demonstrator:
    """The player of `2048-score`, recorded; `options` are those of `GamePlayer`."""
    if asked.template != "2048-score":
        raise LabError(f"nobody demonstrates {asked.template!r} in a browser, only 2048-score")
    player: Any = lab.demonstrator(asked)
    args = asked.args
    page = page_url("2048") if args["keep_page"] else None
    game = RecordedGame(player, args)
    return Recorder(game.record, ((args["width"], args["height"]), 1.0), page=lambda _: page)
