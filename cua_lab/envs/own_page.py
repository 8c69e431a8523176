"""An env of one's own on a web page: `cua-lab new NAME --page FILE` writes one on top of this.

    templates -> PageEnvironment -> the page in Chromium, over RFB -> `lab.state()` -> grade

The page offers two functions: `lab.start({seed})` sets a start state, `lab.state()` returns an
object of JSON types that the grader reads. Invariant: a page that complains, or has no such
functions, makes a failed episode, not a reward of 0.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hud.eval import Task

from cua_lab.desktop.page_server import PageServer
from cua_lab.envs.browser.env import Page
from cua_lab.envs.browser_screen import MOST_IN_PROCESS, REAL_SCREEN, BrowserScreen, page_size
from cua_lab.envs.own_app import Grade, graded, read, start
from cua_lab.envs.screen_env import Episode, ScreenEnvironment, Template

__all__ = [
    "MOST_IN_PROCESS",
    "REAL_SCREEN",
    "BrowserScreen",
    "Episode",
    "Grade",
    "PageEnvironment",
    "graded",
    "pooled",
    "read",
    "start",
]


class PageEnvironment(ScreenEnvironment[BrowserScreen]):
    """A HUD env with one browser, in which each episode opens the page anew."""

    def __init__(
        self, name: str, templates: Mapping[str, Template], *, page: Path, desk: BrowserScreen
    ) -> None:
        """`page` is the file; what it loads lies in the same folder."""
        super().__init__(name, desk, templates)
        self._page = page

    @asynccontextmanager
    async def playing(self, size: tuple[int, int], **begin: Any) -> AsyncIterator[Page]:
        """Open the page and call `lab.start` with these values."""
        url = _server(self._page.parent).url(f"pages/{self._page.name}")
        async with self._desk.playing(url, size=size) as desktop:
            await desktop.evaluate(f"lab.start({json.dumps(begin)})")
            await desktop.drawn()
            yield Page(desktop)


@cache
def _server(folder: Path) -> PageServer:
    return PageServer({"pages": folder})


def pooled(task: Task | None, size: tuple[int, int]) -> BrowserScreen:
    """A browser of this process's pool, as large as the row asks for, or `size`."""
    return BrowserScreen(page_size(task.args if task else {}, size)[0], pooled=True)
