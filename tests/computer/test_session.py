"""A bench is an episode's screen and tool without the episode."""

import asyncio

import pytest

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import DeadScreen
from cua_lab.computer.session import ScreenSession
from cua_lab.desktop.apps import Game2048, Todo


def test_a_call_goes_over_the_wire_and_the_screenshot_shows_it() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Todo(items=["Buy milk"]))
        try:
            before = await bench.call({"action": "screenshot"})
            after = await bench.call({"action": "type", "text": "Tea"})
            assert bench.app.field.text == "Tea"
            assert before.image.size == after.image.size == (128, 128)
            assert before.png != after.png
        finally:
            await bench.close()

    asyncio.run(drive())


def test_an_error_has_words_and_no_screenshot() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Game2048())
        try:
            shown = await bench.call({"action": "press", "keys": ["lef"]})
        finally:
            await bench.close()
        assert shown.error
        assert "left" in shown.text
        with pytest.raises(ValueError, match="without a screenshot"):
            shown.image  # noqa: B018

    asyncio.run(drive())


def test_a_server_that_says_nothing_is_a_dead_screen_and_no_endless_cell() -> None:
    async def drive() -> None:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        url = f"rfb://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(DeadScreen, match=r"no screen at rfb://.* within 0\.2 s"):
            await ScreenSession.on(url, ToolConfig(screen_timeout_s=0.2))
        silent.close()

    asyncio.run(drive())
