"""The desk: one screen on a loopback port, on which each episode puts its own app.

The port is known before the first episode (HUD publishes it when the env starts), the app only when
one begins. Invariant: at most one episode plays at a time, so no one's keys reach another's app.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace

from hud.capabilities import Capability

from cua_lab.desktop import same_process as process
from cua_lab.desktop.app import App
from cua_lab.desktop.apps import Targets
from cua_lab.desktop.rfb import RFBServer
from cua_lab.errors import LabError

SCREEN = "screen"
ABANDONED_S = 60.0
"""An episode that has had no screen client for this long may be replaced: its owner is gone."""


class AppScreen:
    """An RFB server whose app can be replaced between episodes."""

    def __init__(self) -> None:
        self._server = RFBServer(Targets())  # a screen has to show something before an episode
        self._playing: App | None = None
        self._since = 0.0

    async def open(self) -> Capability:
        """Start serving; what HUD is to publish."""
        await self._server.start()
        screen = Capability.rfb(name=SCREEN, url=self._server.url)
        return replace(screen, params={**screen.params, process.PARAM: process.PROCESS_ID})

    async def close(self) -> None:
        await self._server.close()

    @contextlib.contextmanager
    def playing(self, app: App) -> Iterator[None]:
        """Show an app for the length of an episode."""
        now = asyncio.get_running_loop().time()
        abandoned = self._server.clients == 0 and now - self._since > ABANDONED_S
        if self._playing is not None and not abandoned:
            raise LabError(
                "this desktop plays another episode; one env serves one episode at a time. Give "
                "each its own env, LocalRuntime(build), or let them wait, Shared(runtime, width=1)"
            )
        self._playing, self._since = app, now
        self._server.app, self._server.size = app, app.size
        try:
            yield
        finally:
            if self._playing is app:
                self._playing = None
