"""A bench is an episode's screen and tool without the episode."""

import asyncio

import pytest

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
