"""Connecting to the screen of an env: the shortest way there is, within a time limit.

Invariant: what `connect` returns has answered the RFB handshake; otherwise it raises `DeadScreen`,
and nothing here waits longer than it was told.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import asyncvnc
from hud.capabilities import Capability, RFBClient

from cua_lab.computer.limits import HANDSHAKE, bounded_inflate, frame_bytes, open_limited
from cua_lab.desktop import same_process as process
from cua_lab.waiting import waiting

if TYPE_CHECKING:
    from hud.clients import HudClient


CLOSE_S = 1.0
RGBX = struct.pack(">BxxxBBBBHHHBBBxxx", 0, 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
"""SetPixelFormat: 32 bits, little-endian, red first."""


class DeadScreen(TimeoutError):
    """The screen no longer answers. HUD's loop turns every other exception of a tool into a result
    for the model; a `TimeoutError` ends the episode, marked as failed."""


class BrokenTool(DeadScreen):
    """The tool itself failed. What the policy asked for was right or wrong; this says neither."""


class Screen(RFBClient):
    """HUD's client without the screenshot that it takes on connecting: the tool always asks for
    whole frames, and asyncvnc's own reading hangs on a Bell."""

    @staticmethod
    async def _open(
        stack: AsyncExitStack, host: str, port: int, user: str | None, password: str | None
    ) -> asyncvnc.Client:
        conn = await stack.enter_async_context(
            asyncvnc.connect(
                host=host, port=port, username=user, password=password, opener=open_limited
            )
        )
        most = frame_bytes(conn.video.width, conn.video.height)
        conn.reader.most = most + most // 100 + HANDSHAKE  # what deflate adds at worst
        conn.video.decompress = bounded_inflate(most)
        if conn.video.mode != "rgba":  # an X server's own order has to be shuffled: 5 ms a frame
            conn.video.mode = "rgba"
            conn.writer.write(RGBX)
        return conn

    async def close(self) -> None:
        """Hang up; a server that is gone, or takes no more data, is not waited for."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await super().close()
        except OSError:
            self.conn.writer.transport.abort()


async def connect(client: HudClient, *, timeout_s: float) -> Screen:
    """The env's first screen; directly where it is in this process, else through HUD's tunnel."""
    return await connect_to(_address(client), timeout_s=timeout_s)


async def connect_to(capability: Capability, *, timeout_s: float) -> Screen:
    """The screen at an address; raises `DeadScreen` when it has not answered by then."""
    try:
        async with waiting("the screen to answer", timeout_s):
            return await Screen.connect(capability)
    except (OSError, EOFError, ValueError) as error:
        raise DeadScreen(
            f"no screen at {capability.url} within {timeout_s:g} s: {type(error).__name__} {error}"
        ) from error


def _address(client: HudClient) -> Capability:
    bindings = [] if client.manifest is None else client.manifest.bindings
    screens = [cap for cap in bindings if cap.protocol == RFBClient.protocol]
    if not screens:
        raise DeadScreen("the env publishes no rfb/3.8 capability: there is no screen to look at")
    here = screens[0].params.get(process.PARAM) == process.PROCESS_ID
    return screens[0] if here else client.binding(screens[0].name)
