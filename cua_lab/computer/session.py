"""A bench: a screen and the computer tool on it, in this process.

    app ──RFBServer──▶ loopback ──Screen──▶ ComputerTool ──call──▶ Shown
    a browser, any VNC server ──▶ ┘

What an episode has, without the episode: for notebooks and for trying things out. Invariant: a call
takes the same way as a policy's, over a socket and back; nothing touches the app directly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hud.capabilities import Capability
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen, connect_to
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.app import App
from cua_lab.desktop.rfb import RFBServer
from cua_lab.hud_quirks import silence_cancelled_streams
from cua_lab.pictures import read_base64, read_rgb


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back from one call."""

    error: bool
    text: str
    """The tool's words; empty for a plain screenshot."""
    png: bytes | None
    """The screenshot; `None` with an error."""

    @property
    def image(self) -> Image.Image:
        """The screenshot as a picture."""
        if self.png is None:
            raise ValueError(f"an error comes without a screenshot: {self.text}")
        return read_rgb(self.png)


@dataclass(slots=True)
class ScreenSession:
    """Made by `ScreenSession.open` or `ScreenSession.on`; close it when done."""

    app: Any
    """The app itself, to look at its state and its boxes; `None` behind a screen of others."""
    server: RFBServer | None
    """Who serves the app."""
    url: str
    tool: ComputerTool
    _screen: Screen
    closed: bool = False
    """After `close` every call fails."""

    @classmethod
    async def open(cls, app: App, config: ToolConfig | None = None) -> ScreenSession:
        """Serve the app and connect the tool; the embedded desktop needs no pace."""
        server = await RFBServer(app).start()
        bench = await cls.on(server.url, config or ToolConfig(pace_ms=0))
        bench.app, bench.server = app, server
        return bench

    @classmethod
    async def on(cls, url: str, config: ToolConfig | None = None) -> ScreenSession:
        """Connect the tool to a screen that is served already, by default a real one: paced, and
        looked at when it is at rest. Raises `DeadScreen` where none answers in time."""
        config = config or ToolConfig(settle=QuietFramebuffer())
        address = Capability.rfb(name="screen", url=url)
        screen = await connect_to(address, timeout_s=config.screen_timeout_s)
        tool = ComputerTool(client=screen, config=config)
        silence_cancelled_streams(asyncio.get_running_loop())
        return cls(None, None, url, tool, screen)

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """One call of the tool, with the arguments that a model would have written."""
        result = await self.tool.execute(arguments)
        text = "".join(part.text for part in result.content if part.type == "text")
        images = [part.data for part in result.content if part.type == "image"]
        return ToolResult(result.isError, text, read_base64(images[-1]) if images else None)

    async def close(self) -> None:
        """Hang up and stop serving."""
        self.closed = True
        await self._screen.close()
        if self.server is not None:
            await self.server.close()
