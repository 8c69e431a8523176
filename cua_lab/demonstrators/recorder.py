"""Demonstrations recorded on real browsers: scripted players whose screens are the policy's own.

    index ──▶ block of indices ──several desktops at once──▶ demos, kept

Recording waits more than it computes (a page settles, a screen answers), so a block is played on
several desktops at a time. Invariant: demo number `index` depends on the index alone, never on
which desktop played it or on what was recorded before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from cua_lab.demonstrators.demos import _Conversation
from cua_lab.desktop import background
from cua_lab.desktop.pool import shared_pool
from cua_lab.pictures import read_rgb

if TYPE_CHECKING:
    from cua_lab.demonstrators.demos import Demo, PromptContext
    from cua_lab.desktop.chromium import ChromiumDesktop
    from cua_lab.play.episode import Episode

AT_ONCE = 8
"""Desktops that record: as many as play later (15 pages a second on two cores; 4 make 11)."""
BLOCK = 256
"""Demos recorded together: desktops change pages once a block, at 0.45 CPU-seconds each."""

Record = Callable[["ChromiumDesktop", int], Awaitable["Demo"]]
"""Plays demo number `index` on a desktop."""


class Recorder:
    """Records demos as they are asked for, a block at a time, and keeps them."""

    def __init__(
        self,
        record: Record,
        screen: tuple[tuple[int, int], float],
        *,
        page: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """`screen` is size and scale of the desktops; `page` the one to keep for demo number
        `index`, if any."""
        self._record, self._screen, self._page = record, screen, page
        self._demos: dict[int, Demo] = {}

    @classmethod
    def dealt(cls, recorders: Sequence[Recorder]) -> Recorder:
        """One for several, each in turn; their desktops are the same."""
        count = len(recorders)

        async def record(desktop: ChromiumDesktop, index: int) -> Demo:
            return await recorders[index % count]._record(desktop, index // count)

        return cls(
            record,
            recorders[0]._screen,
            page=lambda index: recorders[index % count]._page(index // count),
        )

    def __call__(self, index: int) -> Demo:
        if index not in self._demos:
            first = index - index % BLOCK
            background.wait(self._record_all(range(first, first + BLOCK), lambda: None))
        return self._demos[index]

    async def fill(self, count: int, on_demo: Callable[[], None]) -> None:
        """Record the first `count` demos now; `on_demo` is called after each."""
        await background.run(self._record_all(range(count), on_demo))

    async def _record_all(self, indices: range, on_demo: Callable[[], None]) -> None:
        """On the background loop: browsers need no other."""
        (width, height), scale = self._screen
        pool = shared_pool(width, height, scale=scale)
        waiting = [index for index in reversed(indices) if index not in self._demos]
        waiting.sort(key=lambda index: self._page(index) or "")  # a desktop keeps its page for long

        async def work() -> None:
            while waiting:
                index = waiting.pop()
                page = self._page(index)
                async with pool.lend(page, keep=page is not None) as desktop:
                    self._demos[index] = await self._record(desktop, index)
                on_demo()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the others ended with it


def demo_of(prompt: PromptContext, task: str, episode: Episode) -> Demo:
    """An episode as a conversation, without a closing `finish`: the last call has ended it."""
    screens = [read_rgb(png) for png in episode.screenshots]
    calls: list[Any] = [a.arguments for a in episode.actions if a.arguments and a.screenshot]
    talk = _Conversation(prompt, task, screens[0])
    for i, call in enumerate(calls):
        talk.call(dict(call))
        if i < len(calls) - 1:
            talk.result(screens[i + 1])
    return talk.demo()
