"""The live screen sends what a model would send, and keeps a static copy of what it shows."""

import asyncio
import base64
import io

import pytest
from PIL import Image, ImageChops

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import DeadScreen
from cua_lab.computer.session import ScreenSession
from cua_lab.desktop.apps import Game2048
from cua_lab.lessons.live_screen import LiveScreen, live_screen


def test_a_message_from_the_browser_is_a_call_of_the_tool() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Game2048(seed=1))
        try:
            live = await live_screen(bench, watch=("moves",))
            first = live.frame
            asked = {"call": {"action": "press", "keys": ["left", "up"]}}
            for _ in range(2):  # JupyterLab's subshells call from a thread of their own
                await asyncio.to_thread(live._handle_custom_msg, asked, [])
                await asyncio.gather(*map(asyncio.wrap_future, tuple(live._asked_for)))
            assert live.frame != first
            assert live.sent == '{"action": "press", "keys": ["left", "up"]}'
            assert live.state == f"moves: {bench.app.moves}"
            assert bench.app.moves > 0
            await live.call({"action": "click"})
            assert live.error
            assert "missing" in live.said
        finally:
            await bench.close()

    asyncio.run(drive())


def test_its_static_copy_is_a_picture_and_one_line_without_addresses() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Game2048(seed=1))
        try:
            live = await live_screen(bench)
            data, metadata = live._repr_mimebundle_()
        finally:
            await bench.close()
        assert data["text/plain"] == 'LiveScreen(128x128, {"action": "screenshot"} -> a screenshot)'
        assert data["image/png"].startswith("iVBOR")
        alt = 'The screen after {"action": "screenshot"}'
        assert metadata["image/png"] == {"width": 384, "alt": alt}

    asyncio.run(drive())


def test_one_that_follows_shows_what_others_do_and_takes_no_frame_from_them() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Game2048(seed=1))
        other = await ScreenSession.on(bench.url, ToolConfig(pace_ms=0))
        live = await live_screen(bench, follow=True)
        try:
            for key in ("left", "up", "left"):
                seen = live.frames
                shown = await other.call({"action": "press", "keys": [key]})
                async with asyncio.timeout(10):
                    while live.frames == seen or not same(live.frame, shown.image):
                        await asyncio.sleep(0.01)
            assert live.following
            await live.unfollow()
            assert not live.following
        finally:
            await other.close()
            await bench.close()

    asyncio.run(drive())


def test_a_click_after_the_desktop_was_closed_says_what_to_do() -> None:
    """Run All closes it in a later cell; without a word every click seemed to be ignored."""

    async def drive() -> None:
        bench = await ScreenSession.open(Game2048(seed=1))
        live = await live_screen(bench)
        await bench.close()
        live._handle_custom_msg({"call": {"action": "press", "keys": ["tab"]}}, [])
        (asked,) = live._asked_for
        with pytest.raises(DeadScreen):
            await asyncio.wrap_future(asked)
        assert live.error
        assert live.said == "the desktop was closed: run this cell again"
        assert live.sent == '{"action": "press", "keys": ["tab"]}'

    asyncio.run(drive())


def test_a_click_after_the_loop_has_ended_says_the_same() -> None:
    async def drive() -> LiveScreen:
        bench = await ScreenSession.open(Game2048(seed=1))
        live = await live_screen(bench)
        await bench.close()
        return live

    live = asyncio.run(drive())
    live._handle_custom_msg({"call": {"action": "press", "keys": ["tab"]}}, [])
    assert live.error
    assert live.said == "the desktop was closed: run this cell again"


def test_any_other_fault_of_a_call_is_shown_too() -> None:
    async def drive() -> None:
        bench = await ScreenSession.open(Game2048(seed=1))
        live = await live_screen(bench)
        live._watch = ("no_such_field",)
        try:
            live._handle_custom_msg({"call": {"action": "screenshot"}}, [])
            await asyncio.gather(
                *map(asyncio.wrap_future, tuple(live._asked_for)), return_exceptions=True
            )
            assert live.error
            assert "no_such_field" in live.said
        finally:
            await bench.close()

    asyncio.run(drive())


def test_a_screen_that_ends_is_said_to_be_gone() -> None:
    async def drive() -> None:
        config = ToolConfig(pace_ms=0, screen_timeout_s=0.5)
        bench = await ScreenSession.open(Game2048(seed=1), config)
        live = await live_screen(bench, follow=True)
        await asyncio.sleep(0.1)
        await bench.close()
        async with asyncio.timeout(10):
            while live.following:
                await asyncio.sleep(0.01)
        assert live.said == "the screen is gone"

    asyncio.run(drive())


def same(address: str, image: Image.Image) -> bool:
    with Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) as frame:
        return ImageChops.difference(frame.convert("RGB"), image).getbbox() is None
