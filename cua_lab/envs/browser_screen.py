"""The desk of a browser env: the desktop on which its episodes play.

In this process each episode borrows one from the shared pool; a served env (a child process, a
container) has one of its own, which boots anew, on the same port, for a row of another size.
Invariant: at most one episode plays at a time, on a browser that shows nothing of the last one. A
row that keeps the page trusts the page to begin anew, and pays a tenth: 0.04 CPU-seconds an episode
instead of 0.4.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from hud.capabilities import Capability

from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.desktop import same_process as process
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.pool import DesktopPool, shared_pool
from cua_lab.desktop.roundtrip import Deaf
from cua_lab.errors import LabError

SCREEN = "screen"
MOST_IN_PROCESS = 8
"""Desktops of one size in one process: more episodes at a time would wait for each other."""
REAL_SCREEN: dict[str, Any] = {"settle": QuietFramebuffer(quiet_ms=40), "pace_ms": 20}
"""What the computer tool needs on a real screen, where no recipe says so."""


class BrowserScreen:
    """One desktop for the length of an env's life."""

    def __init__(
        self,
        size: tuple[int, int],
        *,
        scale: float = 1.0,
        pooled: bool = False,
        lent: ChromiumDesktop | None = None,
        keep: str | None = None,
    ) -> None:
        """`pooled` borrows from this process's pool; `lent` is one that somebody else ends; `keep`
        is the page that a pooled one may show already, and stays on."""
        self._size, self._scale, self._lent, self._keep = size, scale, lent, keep
        self._pool: DesktopPool | None = None
        if pooled:
            self._pool = shared_pool(*size, scale=scale, count=MOST_IN_PROCESS)
        self._desktop: ChromiumDesktop | None = None
        self._playing = False

    async def open(self) -> Capability:
        """Have a desktop; what HUD is to publish."""
        if self._lent is not None:
            self._desktop = self._lent
        elif self._pool is not None:
            self._desktop = await self._pool.borrow(self._keep)
        else:
            self._desktop = await ChromiumDesktop(*self._size, scale=self._scale).start()
        screen = Capability.rfb(name=SCREEN, url=self._desktop.url)
        return replace(screen, params={**screen.params, process.PARAM: process.PROCESS_ID})

    async def close(self) -> None:
        """Give the desktop back, or end it."""
        desktop, self._desktop = self._desktop, None
        if desktop is None or desktop is self._lent:
            return
        if self._pool is not None:
            await self._pool.give_back(desktop, keep=self._keep is not None)
        else:
            await desktop.close()

    @contextlib.asynccontextmanager
    async def playing(
        self, url: str, *, size: tuple[int, int], scale: float = 1.0, keep: bool = False
    ) -> AsyncIterator[ChromiumDesktop]:
        """Show a page for the length of an episode; `keep` goes on with one that is there."""
        if self._playing:
            raise LabError(
                "this browser plays another episode; one env serves one episode at a time. Give "
                "each its own env, LocalRuntime(build), or let them wait, Shared(runtime, width=1)"
            )
        self._playing = True
        try:
            desktop = await self._fitting(size, scale)
            try:
                await _show(desktop, url, keep)
            except Deaf:
                if self._pool is not None or self._lent is not None:
                    raise  # the pool replaces it
                desktop = await self._boot_again(desktop, size, scale)
                await desktop.show(url)
            yield desktop
        finally:
            self._playing = False

    async def _fitting(self, size: tuple[int, int], scale: float) -> ChromiumDesktop:
        """The desktop, booted anew where the row asks for another size or the browser is dead."""
        desktop = self._desktop
        if desktop is None:
            raise LabError("this env was not started: play it through a HUD runtime")
        fits = (desktop.size, desktop.scale) == (size, scale)
        if fits and desktop.alive:
            return desktop
        if self._pool is not None or self._lent is not None:
            raise LabError(
                f"the row asks for a screen of {size} at scale {scale:g}, the desktop has "
                f"{desktop.size} at {desktop.scale:g} and "
                f"{'runs' if desktop.alive else 'has ended'}"
            )
        return await self._boot_again(desktop, size, scale)

    async def _boot_again(
        self, desktop: ChromiumDesktop, size: tuple[int, int], scale: float
    ) -> ChromiumDesktop:
        """A new desktop of one's own in the place of this one."""
        port = desktop.port  # HUD has published it
        with desktop.hold_port():
            await desktop.close()
            self._desktop = await ChromiumDesktop(*size, scale=scale, port=port).start()
        return self._desktop


async def _show(desktop: ChromiumDesktop, url: str, keep: bool) -> None:
    if keep and desktop.page == url and not desktop.faults:
        await desktop.rest()
    else:
        await desktop.show(url)


def page_size(
    args: dict[str, Any], default: tuple[int, int], base: int | None = None
) -> tuple[tuple[int, int], float]:
    """A row's screen and its scale: pixels per CSS pixel of a page that is `base` wide, or 1."""
    width, height = int(args.get("width", default[0])), int(args.get("height", default[1]))
    return (width, height), (width / base if base else 1.0)
