"""Seeing and acting over a real RFB connection: HUD's client, the lab's desktop, bad servers."""

import asyncio
import base64
import io
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from hud.capabilities import Capability, RFBClient
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import DeadScreen, Screen, connect
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop import same_process as process
from cua_lab.desktop.apps import Game2048, Targets, Todo
from cua_lab.desktop.rfb import RFBServer

BELL = b"\x02"
CUT_TEXT = b"\x03\0\0\0" + struct.pack(">I", 5) + b"hello"
COLOUR_MAP = b"\x01\0\0\0" + struct.pack(">H", 2) + bytes(12)


def within(seconds: float, coroutine):
    async def limited():
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(limited())


async def tool_on(server: RFBServer, **config) -> ComputerTool:
    client = await Screen.connect(Capability.rfb(url=server.url))
    return ComputerTool(client=client, config=ToolConfig(**{"pace_ms": 0} | config))


def pixels(result) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(result.content[-1].data))))


def test_the_screenshot_after_an_action_shows_its_result_to_the_pixel() -> None:
    """No sleep: the server answers from a screen drawn after everything before the request."""

    async def scenario() -> None:
        app = Game2048(seed=3)
        async with RFBServer(app) as server:
            tool = await tool_on(server)
            for _ in range(5):
                result = await tool.execute({"action": "press", "keys": ["left", "down", "up"]})
                assert np.array_equal(pixels(result), np.asarray(app.draw()))
            await tool.client.close()
        assert app.moves > 0

    within(200, scenario())


def test_a_click_said_in_thousandths_lands_where_it_was_meant() -> None:
    async def scenario() -> None:
        app = Targets(2, width=200, height=150, seed=5)
        async with RFBServer(app) as server:
            tool = await tool_on(server, coordinate_space="0-1000", screenshot_width=100)
            x, y = tool.view.from_screen(*app.target.box.center)
            await tool.execute({"action": "click", "x": x, "y": y})
            await tool.client.close()
        assert app.last_click == app.target.box.center
        assert app.hit

    within(200, scenario())


def test_any_text_arrives_whole() -> None:
    async def scenario() -> None:
        app = Todo(count=0)
        async with RFBServer(app) as server:
            tool = await tool_on(server)
            await tool.execute({"action": "type", "text": "Résumé, 日本 ~!{}\b!\nnext"})
            await tool.client.close()
        assert [item.text for item in app.items] == ["Résumé, 日本 ~!{!"]
        assert app.field.text == "next"

    within(200, scenario())


class Noise:
    """A proxy that says things between frames that no one has asked for."""

    def __init__(self, server: RFBServer, noise: bytes) -> None:
        self.server, self.noise, self.connections = server, noise, 0

    async def __aenter__(self) -> "Noise":
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"rfb://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc) -> None:
        self._listener.close()

    async def _accept(self, reader, writer) -> None:
        self.connections += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.server.port)

        async def forward() -> None:
            while data := await reader.read(65536):
                if len(data) >= 10 and data[-10] == 3:  # before the answer to an update request
                    writer.write(self.noise)
                up_writer.write(data)
            up_writer.close()

        async def back() -> None:
            while data := await up_reader.read(65536):
                writer.write(data)
            writer.close()

        await asyncio.gather(forward(), back())


@pytest.mark.parametrize("noise", [BELL, CUT_TEXT, COLOUR_MAP, BELL + CUT_TEXT + BELL])
def test_bells_and_cut_text_cost_nothing(noise: bytes) -> None:
    """asyncvnc takes one for the other: a lone Bell hangs its `screenshot` forever, cut text
    desyncs the stream, and HUD reconnects and loses held buttons."""

    async def scenario() -> None:
        async with RFBServer(Todo()) as server, Noise(server, noise) as proxy:
            client = await Screen.connect(Capability.rfb(url=proxy.url))
            tool = ComputerTool(client=client, config=ToolConfig(screen_timeout_s=2.0))
            for _ in range(3):
                assert not (await tool.execute({"action": "screenshot"})).isError
            assert proxy.connections == 1
            await client.close()

    within(200, scenario())


def test_a_stream_out_of_step_is_mended_by_one_new_connection() -> None:
    class Once(Noise):
        async def _accept(self, reader, writer) -> None:
            self.noise = b"\x77" if self.connections == 0 else b""
            await super()._accept(reader, writer)

    async def scenario() -> None:
        async with RFBServer(Todo()) as server, Once(server, b"") as proxy:
            client = await Screen.connect(Capability.rfb(url=proxy.url))
            tool = ComputerTool(client=client, config=ToolConfig(screen_timeout_s=2.0))
            assert not (await tool.execute({"action": "screenshot"})).isError
            assert proxy.connections == 2
            await client.close()

    within(200, scenario())


def test_a_closed_screen_is_dead_in_bounded_time() -> None:
    async def scenario() -> None:
        server = await RFBServer(Todo()).start()
        tool = await tool_on(server, screen_timeout_s=0.5)
        await server.close()
        with pytest.raises(DeadScreen):
            await tool.execute({"action": "screenshot"})
        await tool.client.close()

    within(200, scenario())


def test_the_tool_works_on_the_client_that_hud_makes() -> None:
    async def scenario() -> None:
        async with RFBServer(Todo()) as server:
            client = await RFBClient.connect(Capability.rfb(url=server.url))
            tool = ComputerTool(client=client, config=ToolConfig())
            assert pixels(await tool.execute({"action": "screenshot"})).shape == (128, 128, 3)
            await client.close()

    within(200, scenario())


def test_a_desktop_of_this_process_is_dialled_directly_and_any_other_through_the_tunnel() -> None:
    """127.0.0.1 may be a container's: only a token of this process tells."""
    asked = []

    async def scenario() -> None:
        async with RFBServer(Todo()) as server:
            for token in (process.PROCESS_ID, "another process"):
                here = Capability.rfb(name="screen", url=server.url)
                here.params[process.PARAM] = token

                def binding(name: str, capability=here) -> Capability:
                    asked.append(name)
                    return capability

                manifest = SimpleNamespace(bindings=[here])
                client = SimpleNamespace(manifest=manifest, binding=binding)
                screen = await connect(client, timeout_s=5.0)
                await screen.close()

    within(200, scenario())
    assert asked == ["screen"]
