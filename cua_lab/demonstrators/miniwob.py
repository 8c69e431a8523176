"""Demonstrations by the experts, and random play.

A demonstration is an expert's whole episode on a real browser. Invariant: demo number `index` of a
player is always the same episode. A steady hand's demos all show how the task is done: those that
the page did not reward are left out. A shaky hand (`noise`) is shown as it is, hit or miss.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cua_lab.demonstrators.expert_play import expert_config, expert_of, play_expert
from cua_lab.demonstrators.recorder import Recorder, demo_of
from cua_lab.envs.miniwob import page_urls as pages
from cua_lab.envs.miniwob.env import screen_of
from cua_lab.errors import LabError
from cua_lab.play.scripted import random_clicks
from cua_lab.seeds import derive_seed

if TYPE_CHECKING:
    from cua_lab.demonstrators.demos import Demo, DemoRequest, PromptContext
    from cua_lab.demonstrators.demos import Demonstrator as Demonstrator
    from cua_lab.demonstrators.expert_hands import Arguments
    from cua_lab.play.scripted import ScriptedPolicy

ATTEMPTS = 8
"""Seeds tried for a demo: of click-test-2, whose buttons may cover each other, 1 in 10 fails."""


class ExpertPlayer:
    """One page's expert, an episode a demo."""

    def __init__(
        self,
        prompt: PromptContext,
        args: Mapping[str, Any],
        *,
        space: str,
        seed: int,
        noise: float = 0.0,
    ) -> None:
        """`noise` is the standard deviation of where it clicks, as a share of the screen."""
        expert_of(args["page"])  # complains now, not in the middle of a run
        self._prompt, self._args, self._space, self._seed = prompt, dict(args), space, seed
        self._noise = noise
        self.screen = screen_of(self._args)

    async def record(self, desktop: Any, index: int) -> Demo:
        """Demo number `index`, played on this desktop."""
        page, errors = self._args["page"], []
        for attempt in range(ATTEMPTS):
            told: list[str] = []
            episode = await play_expert(
                desktop,
                page,
                derive_seed(self._seed, "demo", index, attempt),
                config=expert_config(self._space),  # type: ignore[arg-type]
                args={"keep_page": self._args["keep_page"]},
                told=told,
                hand=self._hand(index),
            )
            if episode.success or (self._noise and episode.status == "completed"):
                return demo_of(self._prompt, told[0], episode)
            errors.append(episode.error or f"reward {episode.reward}")
        raise LabError(f"the expert failed {page!r} {ATTEMPTS} times: {'; '.join(errors)}")

    def _hand(self, index: int) -> Any:
        rng = random.Random(f"hand {self._seed} {index}")

        def hand(call: Arguments) -> Arguments:
            if not self._noise or "x" not in call:
                return call
            aim = {axis: round(call[axis] + rng.gauss(0, 1000 * self._noise)) for axis in "xy"}
            return call | {axis: min(1000, max(0, at)) for axis, at in aim.items()}

        return hand


def demonstrator(asked: DemoRequest) -> Demonstrator:
    """The expert of the page that `args` name, recorded; `options` may give its `noise`."""
    args, options, space = asked.args, asked.options, asked.space
    if unknown := set(options) - {"noise"}:
        raise LabError(f"sft.player: MiniWoB++'s experts take noise alone; got {sorted(unknown)}")
    noise = options.get("noise", 0.0)
    if not isinstance(noise, (int, float)) or not 0 <= noise < 1 or (noise and space != "0-1000"):
        raise LabError(
            f"sft.player.noise is {noise!r} in the space {space}; it is a share of the screen, "
            "from 0 to 1, in the space 0-1000"
        )
    player = ExpertPlayer(asked.prompt, args, space=space, seed=asked.seed, noise=noise)
    page = pages.url(args["page"]) if args["keep_page"] else None
    return Recorder(player.record, player.screen, page=lambda _: page)


def random_player(
    template: str, *, seed: int, keys_per_turn: float, max_keys: int, space: str
) -> ScriptedPolicy:
    """Blind play: clicks anywhere."""
    return random_clicks(seed, space)
