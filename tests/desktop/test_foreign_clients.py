"""Clients that nobody here wrote: HUD's RFBTool (over asyncvnc) and vncdotool's `vncdo`."""

import asyncio
import base64
import io
import sys

import numpy as np
import pytest
from hud.agents.tools.base import AgentToolSpec
from hud.agents.tools.rfb import RFBTool
from hud.capabilities import Capability
from hud.capabilities.rfb import RFBClient
from PIL import Image

from cua_lab.desktop import keysyms
from cua_lab.desktop.app import LEFT
from cua_lab.desktop.apps import Game2048, Targets, Todo
from cua_lab.desktop.rfb import RFBServer

from .rawclient import within_limit
from .test_rfb import Recording


def pixels(app) -> np.ndarray:
    return np.asarray(app.draw())


class Screen(RFBTool):
    """RFBTool's primitives without an action schema."""

    name = "screen"

    async def execute(self, arguments):
        raise NotImplementedError

    def to_params(self):
        raise NotImplementedError


async def hud_tool(server, **params):
    client = await RFBClient.connect(Capability.rfb(url=server.url, **params))
    spec = AgentToolSpec(api_type="function", api_name="screen")
    return Screen(spec=spec, client=client)


def shown(result) -> np.ndarray:
    """The pixels of a screenshot's result, uint8 (h, w, 3)."""
    image = Image.open(io.BytesIO(base64.b64decode(result.content[0].data)))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("level", [None, 0, 6])
def test_huds_screenshot_is_what_the_app_drew(level):
    async def scenario():
        app = Game2048(320, 200, seed=1)
        async with RFBServer(app, zlib_level=level) as server:
            tool = await hud_tool(server)
            assert (tool.display_width, tool.display_height) == (320, 200)
            assert tool.client.conn.video.mode == "rgba", "our format is taken as it is"
            assert (shown(await tool.screenshot()) == pixels(app)).all()
            await tool.client.close()

    within_limit(scenario)


def test_huds_screenshot_after_an_action_shows_its_result_200_times():
    """Exact settling, with no sleep anywhere."""

    async def scenario():
        app, twin = Todo(seed=1), Todo(seed=1)
        async with RFBServer(app) as server:
            tool = await hud_tool(server)
            for i in range(200):
                if i % 3 == 0:
                    x, y = app.boxes[f"check:{i % 2}"].center
                    await tool.click(x, y)
                    twin.pointer(x, y, LEFT)
                    twin.pointer(x, y, 0)
                elif i % 3 == 1:
                    await tool.click(*app.boxes["field"].center)
                    twin.pointer(*app.boxes["field"].center, LEFT)
                    twin.pointer(*app.boxes["field"].center, 0)
                else:
                    await tool.type_text("ab")
                    twin.key(ord("a"), True)
                    twin.key(ord("b"), True)
                assert (shown(await tool.screenshot()) == pixels(twin)).all(), f"action {i}"
            await tool.client.close()

    within_limit(scenario)


def test_huds_clicks_keys_scrolls_and_drags_arrive():
    async def scenario():
        app = Recording()
        async with RFBServer(app) as server:
            tool = await hud_tool(server)
            await tool.click(10, 20, button="right", count=2)
            await tool.press_keys(["Control_L", "a"])
            await tool.scroll(5, 6, scroll_y=1)
            await tool.screenshot()
            assert app.events == [
                ("pointer", 10, 20, 0),
                *[("pointer", 10, 20, 4), ("pointer", 10, 20, 0)] * 2,
                ("key", keysyms.CONTROL_L, True),
                ("key", ord("a"), True),
                ("key", ord("a"), False),
                ("key", keysyms.CONTROL_L, False),
                ("pointer", 5, 6, 0),
                ("pointer", 5, 6, 16),
                ("pointer", 5, 6, 0),
            ]
            app.events.clear()
            await tool.drag([(10, 10), (40, 10)])
            await tool.screenshot()
            held = [event for event in app.events if event[3] == LEFT]
            assert held[0] == ("pointer", 10, 10, LEFT)
            assert held[-1] == ("pointer", 40, 10, LEFT)
            assert app.events[-1] == ("pointer", 40, 10, 0)
            await tool.client.close()

    within_limit(scenario)


@pytest.mark.filterwarnings("ignore:.*TripleDES")  # asyncvnc's own DES
def test_huds_client_passes_with_the_password_and_not_without(tmp_path):
    path = tmp_path / "password"
    path.write_text("s3cret!\n")

    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app, password_file=path) as server:
            tool = await hud_tool(server, password="s3cret!")
            assert (shown(await tool.screenshot()) == pixels(app)).all()
            with pytest.raises(PermissionError, match="Auth failed"):
                await hud_tool(server, password="wrong")
            with pytest.raises(ValueError, match="requires password"):
                await hud_tool(server)
            await tool.client.close()

    within_limit(scenario)


async def vncdo(server, *words: str, password: str | None = None) -> int:
    """Run vncdotool's command line in a process of its own; its exit status."""
    options = ["-s", f"127.0.0.1::{server.port}", "--delay=1", "--timeout=8", "--nocursor"]
    options += [f"--password={password}"] if password else []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from vncdotool.command import vncdo; vncdo()",
        *options,
        *words,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


def captured(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def test_vncdotool_captures_what_the_app_drew_before_and_after_its_keys(tmp_path):
    async def scenario():
        app, twin = Game2048(seed=3), Game2048(seed=3)
        before, after = tmp_path / "before.png", tmp_path / "after.png"
        async with RFBServer(app) as server:
            words = ["capture", str(before), "key", "left", "key", "up", "capture", str(after)]
            assert await vncdo(server, *words) == 0
        assert (captured(before) == pixels(twin)).all()
        twin.push("left")
        twin.push("up")
        assert app.state() == twin.state()
        assert (captured(after) == pixels(twin)).all()

    within_limit(scenario)


def test_vncdotool_types_clicks_and_drags(tmp_path):
    async def scenario():
        todo = Todo(320, 240, items=["One", "Two"])
        check = [str(value) for value in todo.boxes["check:1"].center]
        field = [str(value) for value in todo.boxes["field"].center]
        async with RFBServer(todo) as server:
            words = ["move", *field, "click", "1", "type", "Buy Milk!", "key", "enter"]
            words += ["move", *check, "click", "1", "capture", str(tmp_path / "todo.png")]
            assert await vncdo(server, *words) == 0
        assert todo.state()["items"] == [
            {"text": "One", "done": False},
            {"text": "Two", "done": True},
            {"text": "Buy Milk!", "done": False},
        ]
        assert (captured(tmp_path / "todo.png") == pixels(todo)).all()

        targets = Targets(2, seed=5)
        x, y = targets.target.box.center
        async with RFBServer(targets) as server:
            words = ["move", str(x - 2), str(y), "drag", str(x), str(y), "click", "1"]
            assert await vncdo(server, *words) == 0
        assert targets.hit

    within_limit(scenario)


def test_vncdotool_needs_the_password_when_there_is_one(tmp_path):
    path, picture = tmp_path / "password", tmp_path / "screen.png"
    path.write_text("s3cret!\n")

    async def scenario():
        app = Game2048(seed=1)
        async with RFBServer(app, password_file=path) as server:
            assert await vncdo(server, "capture", str(picture), password="wrong") != 0
            assert not picture.exists()
            assert await vncdo(server, "capture", str(picture), password="s3cret!") == 0
            assert (captured(picture) == pixels(app)).all()

    within_limit(scenario)
