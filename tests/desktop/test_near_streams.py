"""A client in the server's event loop is served without a socket, and sees what TCP's sees."""

import asyncio
from typing import Any

import pytest
from hud.capabilities import Capability

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop.apps import Game2048
from cua_lab.desktop.near_streams import NearWriter, dial_near
from cua_lab.desktop.rfb import RFBServer

CALLS = (
    {"action": "press", "keys": ["left", "up", "left"]},
    {"action": "click", "x": 5, "y": 9},
    {"action": "press", "keys": ["down"]},
)


async def looked(url: str) -> tuple[bool, list[str]]:
    """Whether the connection has no socket, and the screens after each call."""
    screen = await Screen.connect(Capability.rfb(url=url))
    tool = ComputerTool(client=screen, config=ToolConfig(pace_ms=0))
    seen = []
    for call in CALLS:
        (image,) = (await tool.execute(dict(call))).content
        seen.append(image.data)  # type: ignore[union-attr]
    near = isinstance(screen.conn.writer, NearWriter)
    await screen.close()
    return near, seen


def test_both_ways_show_the_same_screens_and_leave_the_same_state() -> None:
    async def play(near: bool) -> tuple[tuple[bool, list[str]], Any]:
        app = Game2048(128, 128, seed=3)
        async with RFBServer(app) as server:
            if near:
                return await looked(server.url), app.state()
            # Another thread has another event loop, for which there is the socket alone.
            return await asyncio.to_thread(lambda: asyncio.run(looked(server.url))), app.state()

    (direct, shown), state = asyncio.run(play(True))
    (other, over_tcp), state_of_tcp = asyncio.run(play(False))
    assert (direct, other) == (True, False)
    assert (shown, state) == (over_tcp, state_of_tcp)


def test_a_server_that_closes_ends_the_stream_and_is_no_longer_found() -> None:
    async def closing() -> None:
        server = await RFBServer(Game2048(128, 128, seed=3)).start()
        host, port = server.host, server.port
        reader, writer = dial_near(host, port) or pytest.fail("nobody listens")
        assert await reader.readline() == b"RFB 003.008\n"
        assert server.clients == 1
        await server.close()
        assert await reader.read() == b""
        assert dial_near(host, port) is None
        writer.write(b"too late")
        writer.close()
        writer.close()

    asyncio.run(asyncio.wait_for(closing(), 60))


def test_a_client_that_hangs_up_is_forgotten() -> None:
    async def hanging_up() -> None:
        app = Game2048(128, 128, seed=3)
        async with RFBServer(app) as server:
            screen = await Screen.connect(Capability.rfb(url=server.url))
            assert server.clients == 1
            await screen.close()
            while server.clients:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(hanging_up(), 60))
