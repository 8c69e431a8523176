"""Demonstrations by the experts, and random play.

A demonstration is an expert's whole episode on a real browser. Invariant: demo number `index` of a
player is always the same episode; those that the page did not reward are left out, so every demo
shows how the task is done.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.rollout.scripted import Player
    from cua_lab.training.demos import Demo, Scene
    from cua_lab.training.demos import Player as Demonstrator

AT_ONCE = 2
"""Desktops that record; more than there are cores is no faster."""
BATCH = 8
ATTEMPTS = 3


class ExpertPlayer:
    """Records an expert's episodes as they are asked for, and keeps them."""

    def __init__(self, scene: "Scene", args: Mapping[str, Any], *, space: str, seed: int) -> None:
        from cua_lab.envs.miniwob.env import screen_of
        from cua_lab.envs.miniwob.play import expert_of

        expert_of(args["page"])  # complains now, not in the middle of a run
        self._scene, self._args, self._space, self._seed = scene, dict(args), space, seed
        self._screen = screen_of(self._args)
        self._demos: dict[int, Demo] = {}

    def __call__(self, index: int) -> "Demo":
        from cua_lab.desktop import background

        if index not in self._demos:
            first = index - index % BATCH
            background.wait(self._record(range(first, first + BATCH)))
        return self._demos[index]

    async def _record(self, indices: range) -> None:
        """On the background loop, which the caller waits for: browsers need no other."""
        from cua_lab.desktop.pool import shared_pool

        size, scale = self._screen
        pool = shared_pool(*size, scale=scale)
        waiting = list(reversed(indices))

        async def record() -> None:
            while waiting:
                index = waiting.pop()
                async with pool.lend() as desktop:
                    self._demos[index] = await self._one(desktop, index)

        await asyncio.gather(*(record() for _ in range(AT_ONCE)))

    async def _one(self, desktop: Any, index: int) -> "Demo":
        from cua_lab.envs.miniwob.play import expert_config, play_expert
        from cua_lab.rollout.seeds import derive_seed

        page, errors = self._args["page"], []
        for attempt in range(ATTEMPTS):
            seed = derive_seed(self._seed, "demo", index, attempt)
            config = expert_config(self._space)  # type: ignore[arg-type]
            told: list[str] = []
            episode = await play_expert(desktop, page, seed, config=config, told=told)
            if episode.success:
                return _demo(self._scene, told[0], episode)
            errors.append(episode.error or f"reward {episode.reward}")
        raise LabError(f"the expert failed {page!r} {ATTEMPTS} times: {'; '.join(errors)}")


def _demo(scene: "Scene", task: str, episode: Any) -> "Demo":
    """The episode as a conversation, without the closing `finish`: the page has ended it."""
    import io

    from PIL import Image

    from cua_lab.training.demos import _Conversation

    screens = [Image.open(io.BytesIO(png)).convert("RGB") for png in episode.screenshots]
    calls = [a.arguments for a in episode.actions if a.arguments and a.screenshot]
    talk = _Conversation(scene, task, screens[0])
    for i, call in enumerate(calls):
        talk.call(dict(call))
        if i < len(calls) - 1:
            talk.result(screens[i + 1])
    return talk.demo()


def demonstrator(
    template: str,
    scene: "Scene",
    args: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    space: str,
    max_keys: int,
    turns: int,
    seed: int,
) -> "Demonstrator":
    """The expert of the page that `args` name; it takes no options."""
    if options:
        raise LabError(f"sft.player: experts of MiniWoB++ take no options; got {sorted(options)}")
    return ExpertPlayer(scene, args, space=space, seed=seed)


def random_player(
    template: str, *, seed: int, keys_per_turn: float, max_keys: int, space: str
) -> "Player":
    """Blind play: clicks anywhere."""
    from cua_lab.rollout.scripted import random_clicks

    if space != "0-1000":
        raise LabError(f"random clicks are made in the space 0-1000, not {space}")
    return random_clicks(seed)
