"""Desktops lent to episodes and made as new between them.

    boot (in parallel) ──▶ idle ──borrow──▶ lent ──give back──▶ reset ──▶ idle
                             ▲                                    │ dead, or hangs
                             └──────────── a new one ◀────────────┘

Invariant: at most `count` desktops exist, each is lent to one borrower at a time, and what is lent
is alive, shows an empty page, or the page that its borrower asked for, and has just got a key that
was sent to its X server. A borrower waits where all are out.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from collections.abc import AsyncIterator

from cua_lab.desktop import background
from cua_lab.desktop.cdp import BrowserError
from cua_lab.desktop.chromium import BLANK, ChromiumDesktop
from cua_lab.errors import LabError
from cua_lab.waiting import waiting

ALIVE_S = 3.0
"""A browser that cannot add up for this long hangs."""
MOST = 16
"""A desktop takes 230 MiB."""


class DesktopPool(background.Lifetime):
    """Chromium desktops of one size. `async with` boots all of them at once; without it each boots
    when it is first needed."""

    def __init__(
        self, count: int = 4, width: int = 640, height: int = 600, *, scale: float = 1.0
    ) -> None:
        if not 1 <= count <= MOST:
            raise LabError(f"a pool has 1 to {MOST} desktops, of 230 MiB each; got {count}")
        ChromiumDesktop(width, height, scale=scale)  # complains about a wrong size now
        self.count, self.size, self.scale = count, (width, height), scale
        self.booted = 0
        """Desktops started so far; more than `count` when dead ones were replaced."""
        self._idle: list[ChromiumDesktop] = []
        self._lent: set[ChromiumDesktop] = set()
        self._free = asyncio.Semaphore(count)
        self._resetting: set[asyncio.Task[None]] = set()
        self._closed = False

    async def borrow(self, page: str | None = None) -> ChromiumDesktop:
        """A desktop of one's own until it is given back; one that was kept on this page, if any."""
        return await background.run(self._borrow(page))

    async def give_back(self, desktop: ChromiumDesktop, *, keep: bool = False) -> None:
        """Return a desktop; it is reset, or replaced, while the borrower goes on. `keep` leaves it
        on its page for who borrows it with that page, and trusts that nothing else remains."""
        await background.run(self._give_back(desktop, keep))

    @contextlib.asynccontextmanager
    async def lend(
        self, page: str | None = None, *, keep: bool = False
    ) -> AsyncIterator[ChromiumDesktop]:
        """A desktop for the length of a block."""
        desktop = await self.borrow(page)
        try:
            yield desktop
        finally:
            await self.give_back(desktop, keep=keep)

    # ─── inside the background loop ───────────────────────────────────

    async def _start(self) -> None:
        boots = await asyncio.gather(
            *(self._boot() for _ in range(self.count)), return_exceptions=True
        )
        self._idle += [desktop for desktop in boots if isinstance(desktop, ChromiumDesktop)]
        for failure in boots:
            if isinstance(failure, BaseException):
                await self._close()
                raise failure

    async def _boot(self) -> ChromiumDesktop:
        desktop = await ChromiumDesktop(*self.size, scale=self.scale).start()
        self.booted += 1
        return desktop

    async def _borrow(self, page: str | None) -> ChromiumDesktop:
        if self._closed:
            raise LabError("this pool is closed: borrow inside of its `async with`")
        async with waiting("a free desktop"):
            await self._free.acquire()
        try:
            desktop = await self._living(page)
        except BaseException:
            self._free.release()
            raise
        self._lent.add(desktop)
        return desktop

    async def _living(self, page: str | None) -> ChromiumDesktop:
        while self._idle:
            self._idle.sort(key=lambda idle: (idle.page == page, idle.page is None))
            desktop = self._idle.pop()  # kept on the page, else empty, else on another page
            if desktop.alive and await self._ready(desktop, page):
                return desktop
            await desktop.close()
        return await self._boot()

    async def _ready(self, desktop: ChromiumDesktop, page: str | None) -> bool:
        """Whether a key reaches the page that it is to show; an empty one was asked already."""
        try:
            if desktop.page not in (None, page):
                await desktop.show(BLANK)
            elif desktop.page is not None:
                await desktop.rest()
        except (BrowserError, OSError):
            return False
        return True

    async def _give_back(self, desktop: ChromiumDesktop, keep: bool) -> None:
        if desktop not in self._lent:
            return  # the pool was closed meanwhile
        self._lent.remove(desktop)
        if keep and desktop.alive and not desktop.faults:
            self._idle.append(desktop)
            self._free.release()
            return
        task = asyncio.create_task(self._renew(desktop))
        self._resetting.add(task)
        task.add_done_callback(self._resetting.discard)

    async def _renew(self, desktop: ChromiumDesktop) -> None:
        """Make a desktop as new; one that cannot be is ended, and the next borrower boots one."""
        try:
            await desktop.evaluate("1", timeout_s=ALIVE_S)
            await desktop.show(BLANK)
            self._idle.append(desktop)
        except (BrowserError, OSError):
            await desktop.close()
            with contextlib.suppress(BrowserError, OSError):  # the borrower will be told
                self._idle.append(await self._boot())
        finally:
            self._free.release()

    async def _close(self) -> None:
        self._closed = True
        await asyncio.gather(*self._resetting, return_exceptions=True)
        desktops = [*self._idle, *self._lent]
        self._idle, self._lent = [], set()
        await asyncio.gather(*(desktop.close() for desktop in desktops))


_shared: dict[tuple[int, int, float], DesktopPool] = {}


def shared_pool(width: int, height: int, *, scale: float = 1.0, count: int = 8) -> DesktopPool:
    """This process's pool of desktops of one size, booted as needed and closed at exit."""
    key = (width, height, scale)
    if key not in _shared:
        if not _shared:
            atexit.register(_close_shared)
        _shared[key] = DesktopPool(count, width, height, scale=scale)
    return _shared[key]


def _close_shared() -> None:
    for pool in _shared.values():
        background.wait(pool.close())
    _shared.clear()
