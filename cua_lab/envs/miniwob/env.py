"""MiniWoB++ as a HUD env: every page by name and seed, on a real browser.

    task args (page, seed) -> the page on the screen -> prompt ... play ... -> the page's own reward

The prompt is the page's own task in words. The reward is the benchmark's, -1 to 1, without its
discount for time: a policy on two cores is slow for reasons that are not its own. An episode that
ends before the page has graded it has failed its task, -1, as the benchmark's timeout does.
Invariant: a page that complains (console, exception, crash) makes a failed episode, not a grade.

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
from cua_lab.envs.miniwob import page_urls as pages
from cua_lab.envs.screen_env import Episode, ScreenEnvironment
from cua_lab.errors import LabError

NAME = "miniwob"
MOST_AT_ONCE = MOST_IN_PROCESS
TOOL = REAL_SCREEN
SIZE = (320, 420)
"""Two screen pixels per CSS pixel: readable. Three are comfortable, one is for small policies."""


class MiniwobEnvironment(ScreenEnvironment[BrowserScreen]):
    """The env: one browser and one template."""

    def __init__(self, desk: BrowserScreen) -> None:
        super().__init__(NAME, desk, {NAME: self.miniwob})

    async def miniwob(
        self,
        page: str = "click-button",
        seed: int = 0,
        turns: int = 8,
        width: int = SIZE[0],
        height: int = SIZE[1],
        keep_page: bool = False,
    ) -> Episode:
        """One MiniWoB++ page; the reward is the page's own, -1 to 1.

        `keep_page` begins anew on a page that is shown already, as the benchmark itself does,
        instead of loading it."""
        if turns < 1:
            raise LabError(f"turns must be at least 1; got {turns}")
        size, scale = screen_of({"width": width, "height": height})
        url = pages.url(page)
        async with self._desk.playing(url, size=size, scale=scale, keep=keep_page) as desktop:
            said = await pages.begin(desktop, seed)
            yield {"prompt": said, "bindings": {SCREEN: {"turns": turns}}}
            await desktop.check()
            found = await pages.outcome(desktop)
            reward = float(found["reward"]) if found["done"] else -1.0
            yield {"score": reward, "info": {"success": reward > 0, "state": found}}


def screen_of(args: dict[str, Any]) -> tuple[tuple[int, int], float]:
    """A row's screen and its scale; the whole page has to be on it."""
    size, scale = page_size(args, SIZE, pages.PAGE_WIDTH)
    if abs(size[1] - scale * pages.PAGE_HEIGHT) > 1:
        raise LabError(
            f"a MiniWoB++ page is {pages.PAGE_WIDTH}x{pages.PAGE_HEIGHT}: for a width of "
            f"{size[0]} the height is {round(scale * pages.PAGE_HEIGHT)}; got {size[1]}"
        )
    return size, scale


def build(task: Task | None = None) -> MiniwobEnvironment:
    """A new env on a desktop of the pool, for `LocalRuntime(build)`."""
    args = task.args if task else {}
    size, scale = screen_of(args)
    keep = pages.url(args["page"]) if args.get("keep_page") else None
    return MiniwobEnvironment(BrowserScreen(size, scale=scale, pooled=True, keep=keep))


def build_on(desktop: ChromiumDesktop) -> MiniwobEnvironment:
    """A new env on this desktop, whose owner may look into the page: experts do."""
    return MiniwobEnvironment(BrowserScreen(desktop.size, scale=desktop.scale, lent=desktop))


env = MiniwobEnvironment(BrowserScreen(SIZE, scale=SIZE[0] / pages.PAGE_WIDTH))
