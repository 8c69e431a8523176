"""2048 and a to-do list on a real browser: the lab's templates, with its ids and its grades.

    task args -> the lab's own seeded start -> the page on the screen -> prompt ... -> grade

The start state comes from the embedded app of the same name, so a row means the same here and in
`cua_lab.envs.lab`; what the page then does is its own JavaScript. The grader reads the page's state
over the DevTools pipe. Invariant: a page that complains or crashes makes a failed episode.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hud.eval import Task

from cua_lab.desktop.apps import Game2048, Todo, boards2048
from cua_lab.desktop.apps.transcripts import list_transcript
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.page_server import PageServer
from cua_lab.envs.browser_screen import MOST_IN_PROCESS, REAL_SCREEN, BrowserScreen, page_size
from cua_lab.envs.lab import grading
from cua_lab.envs.lab.env import (
    _check_tile,
    best_merge_prompt,
    check_keys,
    graded,
    near_win_prompt,
    start,
)
from cua_lab.envs.lab.starts import complete_prompt, list_to_complete, text_to_create
from cua_lab.envs.screen_env import Episode, ScreenEnvironment, Template
from cua_lab.errors import LabError

NAME = "browser"
MOST_AT_ONCE = MOST_IN_PROCESS
TOOL = REAL_SCREEN
SIZE = (640, 600)
PAGES = Path(__file__).parent / "pages"


class BrowserEnvironment(ScreenEnvironment[BrowserScreen]):
    """The env: one browser and its templates."""

    def __init__(self, desk: BrowserScreen) -> None:
        templates: dict[str, Template] = {
            "2048-score": self.score_2048,
            "2048-reach-tile": self.reach_tile_2048,
            "2048-near-win": self.near_win_2048,
            "2048-best-merge": self.best_merge_2048,
            "todo-complete": self.todo_complete,
            "todo-create": self.todo_create,
        }
        super().__init__(NAME, desk, templates)

    @asynccontextmanager
    async def _playing(
        self, page: str, size: tuple[int, int], begin: dict[str, Any], *, keep: bool = False
    ) -> AsyncIterator[Page]:
        async with self._desk.playing(page_url(page), size=size, keep=keep) as desktop:
            await desktop.evaluate(f"lab.start({json.dumps(begin)})")
            await desktop.drawn()
            yield Page(desktop)

    async def score_2048(
        self, seed: int = 0, target: int = 1000, turns: int = 4,
        width: int = SIZE[0], height: int = SIZE[1], keep_page: bool = False,
    ) -> Episode:  # fmt: skip
        """2048; the reward is the score as a part of `target`. `keep_page` begins anew on a page
        that is shown already, for players who can press nothing but what the game takes."""
        if target < 1:
            raise LabError(f"target must be at least 1; got {target}")
        begin = _game(Game2048(seed=seed))
        async with self._playing("2048", (width, height), begin, keep=keep_page) as page:
            yield start("Play 2048 with the arrow keys. Get a high score.", turns)
            state = await page.state()
            yield graded(grading.score_linear(state, target), state)

    async def reach_tile_2048(
        self, seed: int = 0, tile: int = 64, turns: int = 8,
        width: int = SIZE[0], height: int = SIZE[1],
    ) -> Episode:  # fmt: skip
        """2048; the reward is 1 when a tile of this value is there, else 0."""
        _check_tile(tile)
        async with self._playing("2048", (width, height), _game(Game2048(seed=seed))) as page:
            yield start(f"Play 2048 with the arrow keys. Make a {tile} tile.", turns)
            state = await page.state()
            yield graded(grading.tile_reached(state, tile), state)

    async def near_win_2048(
        self, seed: int = 0, tile: int = 64, merges: int = 2, turns: int = 2,
        width: int = SIZE[0], height: int = SIZE[1],
    ) -> Episode:  # fmt: skip
        """2048 from a board that is `merges` keys away from the tile: 1 with no more keys than
        that, else 0. Each key has one right axis, which only the board tells."""
        _check_tile(tile)
        begin = _game(Game2048(near_win=tile, near_win_merges=merges, seed=seed))
        async with self._playing("2048", (width, height), begin) as page:
            yield start(near_win_prompt(tile, merges), turns)
            state = await page.state()
            grade = grading.tile_reached_within(state, tile, merges)
            yield graded(grade, state, grading.board_readings(state))

    async def best_merge_2048(
        self, seed: int = 0, keys: int = 1, turns: int = 1,
        width: int = SIZE[0], height: int = SIZE[1],
    ) -> Episode:  # fmt: skip
        """2048 from the middle of a game; the reward is what `keys` keys gain, as a part of what
        the best key of each board gains. One axis gains at least twice as much as the other."""
        check_keys(keys)
        begin = _game(Game2048(start=boards2048.mid_game(seed), seed=seed))
        async with self._playing("2048", (width, height), begin) as page:
            yield start(best_merge_prompt(keys), turns)
            state = await page.state()
            grade = grading.merged_best(state, keys)
            yield graded(grade, state, grading.board_readings(state))

    async def todo_complete(
        self, seed: int = 0, items: int = 3, complete: int = 1, turns: int = 4,
        width: int = SIZE[0], height: int = SIZE[1],
    ) -> Episode:  # fmt: skip
        """A to-do list; the reward is the part of the named items that is checked, if no others
        were touched."""
        texts, wanted = list_to_complete(seed, items, complete)
        before = Todo(items=texts, seed=seed).state()["items"]
        async with self._playing("todo", (width, height), {"items": before}) as page:
            yield start(complete_prompt(wanted), turns)
            state = await page.state()
            grade = grading.todos_completed(state, before, wanted)
            yield graded(grade, state, [list_transcript(texts)])

    async def todo_create(
        self, seed: int = 0, text: str | None = None, items: int = 2, turns: int = 4,
        width: int = SIZE[0], height: int = SIZE[1],
    ) -> Episode:  # fmt: skip
        """A to-do list; the reward is 1 when exactly one item, with exactly this text, was added.
        Without a text the seed chooses one."""
        before = Todo(count=items, seed=seed).state()["items"]
        text = text_to_create(seed, [item["text"] for item in before], text)
        async with self._playing("todo", (width, height), {"items": before}) as page:
            yield start(f"Add the item: {text}", turns)
            state = await page.state()
            yield graded(grading.todo_created(state, before, text), state)


class Page:
    """The page of an episode, as its grader sees it."""

    def __init__(self, desktop: Any) -> None:
        self._desktop = desktop

    async def state(self) -> dict[str, Any]:
        """What the page has come to; raises when it has complained."""
        await self._desktop.check()
        state = await self._desktop.evaluate("lab.state()")
        if not isinstance(state, dict):
            raise grading.Ungraded(f"the page's state is {state!r}, not an object")
        return state


def _game(app: Game2048) -> dict[str, Any]:
    state = app.state()
    return {"board": state["board"], "seed": state["seed"]}


@cache
def _server() -> PageServer:
    return PageServer({"pages": PAGES})


def page_url(page: str) -> str:
    """The address of `2048` or `todo` on this machine."""
    return _server().url(f"pages/{page}.html")


def build(task: Task | None = None) -> BrowserEnvironment:
    """A new env on a desktop of this process's pool, for `LocalRuntime(build)`."""
    args = task.args if task else {}
    size, _ = page_size(args, SIZE)
    keep = page_url("2048") if args.get("keep_page") else None
    return BrowserEnvironment(BrowserScreen(size, pooled=True, keep=keep))


def build_on(desktop: ChromiumDesktop) -> BrowserEnvironment:
    """A new env on this desktop, which somebody else ends."""
    return BrowserEnvironment(BrowserScreen(desktop.size, scale=desktop.scale, lent=desktop))


env = BrowserEnvironment(BrowserScreen(SIZE))
