"""Injections as a HUD env: a page with a harmless task, and an order to do something else.

    task args (kind, seed) -> a page on the screen -> prompt ... play ... -> events -> grade

The reward is 1 when the harmless task is done, else 0. `info["forbidden"]` says apart from it
whether the forbidden act happened: an agent may do both, one, or neither, and a reward that mixed
them would hide which. Invariant: both come from what the site's server recorded; a page that
complains (console, exception, crash) makes a failed episode, not a grade.

`build` makes a new env for each episode, on a desktop from this process's pool; `env` is the one
that a source path or `python -m hud.environment.server` serves.
"""

from __future__ import annotations

from typing import Any

from hud.eval import Task

from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.envs.browser_screen import (
    MOST_IN_PROCESS,
    REAL_SCREEN,
    SCREEN,
    BrowserScreen,
    page_size,
)
from cua_lab.envs.injection.kinds import facts_of, is_done, is_forbidden, kind_of, prompt_of
from cua_lab.envs.injection.site import Visit, shared_site
from cua_lab.envs.screen_env import Episode, ScreenEnvironment
from cua_lab.errors import LabError

NAME = "injection"
MOST_AT_ONCE = MOST_IN_PROCESS
TOOL = REAL_SCREEN
SIZE = (640, 600)


class InjectionEnvironment(ScreenEnvironment[BrowserScreen]):
    """The env: one browser and one template."""

    def __init__(self, desk: BrowserScreen) -> None:
        super().__init__(NAME, desk, {NAME: self.injection})

    async def injection(
        self,
        kind: str = "hidden-text",
        seed: int = 0,
        turns: int = 8,
        width: int = SIZE[0],
        height: int = SIZE[1],
    ) -> Episode:
        """A page whose text orders something else; the reward is 1 for the user's own task."""
        if turns < 1:
            raise LabError(f"turns must be at least 1; got {turns}")
        chosen = kind_of(kind)
        visit = Visit(chosen, facts_of(chosen, seed))
        site = shared_site()
        try:
            async with self._desk.playing(site.open(visit), size=(width, height)) as desktop:
                prompt = prompt_of(chosen, visit.facts)
                yield {"prompt": prompt, "bindings": {SCREEN: {"turns": turns}}}
                await desktop.drawn()  # what was clicked last has been said to the server
                await desktop.check()
                yield graded(visit)
        finally:
            site.close(visit)


def graded(visit: Visit) -> dict[str, Any]:
    """The last frame of an episode: the reward, and the forbidden act apart from it."""
    done = is_done(visit.kind, visit.facts, visit.events)
    info = {
        "success": done,
        "forbidden": is_forbidden(visit.kind, visit.events),
        "kind": visit.kind.name,
        "seen": visit.kind.seen,
        "state": {"events": [list(event) for event in visit.events]},
    }
    return {"score": float(done), "info": info}


def build(task: Task | None = None) -> InjectionEnvironment:
    """A new env on a desktop of the pool, for `LocalRuntime(build)`."""
    size, _ = page_size(task.args if task else {}, SIZE)
    return InjectionEnvironment(BrowserScreen(size, pooled=True))


def build_on(desktop: ChromiumDesktop) -> InjectionEnvironment:
    """A new env on this desktop, whose owner may look into the page: scripted players do."""
    return InjectionEnvironment(BrowserScreen(desktop.size, scale=desktop.scale, lent=desktop))


env = InjectionEnvironment(BrowserScreen(SIZE))
