"""The computer tool on Chromium over TigerVNC: each case is one that published tools get wrong."""

import asyncio
import base64
import io
import os
import signal
import string

import numpy as np
import pytest
from hud.capabilities import Capability
from PIL import Image

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import DeadScreen, Screen
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop import background
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.page_server import PageServer
from tests.conftest import needs_chromium

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><meta charset="utf-8"><title>t</title>
<style>
  html, body { margin: 0; overflow: hidden }
  #pad { position: absolute; inset: 0; background: #dde }
  #text { position: absolute; left: 50px; top: 50px; width: 300px; height: 120px }
  #box { position: absolute; left: 50px; top: 250px; width: 300px; height: 100px; overflow: auto }
  #box div { width: 3000px; height: 3000px; background: linear-gradient(45deg, #fff, #000) }
</style>
<div id="pad"></div>
<textarea id="text"></textarea>
<div id="box"><div></div></div>
<script>
  const log = [];
  for (const kind of ["mousedown", "mousemove", "mouseup", "click", "dblclick", "contextmenu"])
    addEventListener(kind, e => {
      if (kind === "contextmenu") e.preventDefault();
      log.push([kind, e.clientX, e.clientY, e.buttons, e.detail]);
    }, true);
  const keys = [];
  for (const kind of ["keydown", "keyup"])
    addEventListener(kind, e => {
      keys.push([kind, e.key, e.ctrlKey, e.shiftKey, e.altKey]);
      if (e.target !== text) e.preventDefault();
    }, true);
  const reset = () => { log.length = keys.length = 0; text.value = ""; box.scrollTo(0, 0); };
</script>
"""


class Bench:
    """A borrowed desktop, the page above, and a tool on it, in a loop of its own."""

    def __init__(self, desktop: ChromiumDesktop) -> None:
        self.desktop = desktop
        self.runner = asyncio.Runner()
        self.tool = self.tool_with()

    def tool_with(self, **config) -> ComputerTool:
        connect = Screen.connect(Capability.rfb(url=self.desktop.url))
        settings = {"settle": QuietFramebuffer(quiet_ms=40, react_ms=150), **config}
        return ComputerTool(client=self.runner.run(connect), config=ToolConfig(**settings))

    def do(self, action: str, **arguments):
        return self.runner.run(self.tool.execute({"action": action, **arguments}))

    def ask(self, expression: str):
        return background.wait(self.desktop.evaluate(expression))

    def until(self, expression: str) -> bool:
        """Give a busy machine time, but only as much as it needs."""
        wait = f"""(async () => {{ for (let i = 0; i < 300; i++) {{
            if ({expression}) return true; await new Promise(r => setTimeout(r, 10)); }}
            return false; }})()"""
        return bool(self.ask(wait))

    def close(self) -> None:
        self.runner.run(self.tool.client.close())
        self.runner.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "page.html").write_text(PAGE)
    with PageServer({"test": folder}) as server:
        yield server.url("test/page.html")


@pytest.fixture(scope="module")
def shown(desktops, page):
    desktop = background.wait(desktops.borrow())
    background.wait(desktop.show(page))
    bench = Bench(desktop)
    yield bench
    bench.close()
    background.wait(desktops.give_back(desktop))


@pytest.fixture
def bench(shown):
    shown.ask("reset(), text.blur(), 1")
    return shown


def text_of(result) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def pixels(result) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(result.content[-1].data))))


# ─── keys ─────────────────────────────────────────────────────────────


def test_every_printable_character_arrives_in_one_burst(bench) -> None:
    typed = string.digits + string.ascii_letters + string.punctuation + " "
    bench.ask("text.focus(), 1")
    bench.do("type", text=typed + "\nsecond line\b\b\b\bL")
    assert bench.until(f"text.value.length >= {len(typed) + 9}")
    assert bench.ask("text.value") == typed + "\nsecond L"


def test_a_tab_moves_on(bench) -> None:
    bench.ask("text.focus(), 1")
    bench.do("type", text="a\t")
    assert bench.until("document.activeElement !== text")
    assert bench.ask("text.value") == "a"


def test_accents_symbols_and_other_scripts_arrive(bench) -> None:
    typed = "Résumé – naïve “Ω≈ç√” 日本語 €"
    bench.ask("text.focus(), 1")
    bench.do("type", text=typed)
    assert bench.until(f"text.value.length >= {len(typed)}")
    assert bench.ask("text.value") == typed


def test_the_first_characters_after_boot_arrive_and_capitals_leave_no_lock(page) -> None:
    """A key that the X server has just lent is unknown to the browser for a moment: `東京` gave
    `京京` and `é` nothing (jordansissel/xdotool#437)."""
    needs_chromium()

    async def scenario():
        async with ChromiumDesktop(320, 240) as desktop:
            await desktop.show(page)
            await desktop.evaluate("text.focus(), 1")
            client = await Screen.connect(Capability.rfb(url=desktop.url))
            tool = ComputerTool(client=client, config=ToolConfig(settle=QuietFramebuffer()))
            await tool.execute({"action": "type", "text": "Čecha 東京 éABc"})
            for _ in range(200):
                if (await desktop.evaluate("text.value")).endswith("c"):
                    break
                await asyncio.sleep(0.02)
            await client.close()
            return await desktop.evaluate("[text.value, keys.some(k => k[1] === 'CapsLock')]")

    assert asyncio.run(scenario()) == ["Čecha 東京 éABc", False]


def test_a_text_that_cannot_be_typed_is_refused_whole(bench) -> None:
    """asyncvnc types `ok` of `ok日` and raises; here nothing is typed and the result says why."""
    bench.ask("text.focus(), 1")
    result = bench.do("type", text="half\x07typed")
    assert result.isError
    assert "U+0007" in text_of(result)
    assert bench.ask("text.value") == ""


def test_more_characters_than_the_server_has_keys_for_come_with_a_note(shown) -> None:
    """After 21 different ones an X server has no keycode left to lend."""
    tool = shown.tool_with()
    shown.ask("reset(), text.focus(), 1")
    first = shown.runner.run(tool.execute({"action": "type", "text": "αβγ"}))
    assert text_of(first) == ""
    many = "".join(chr(c) for c in range(0x0410, 0x0410 + 24))
    second = shown.runner.run(tool.execute({"action": "type", "text": many}))
    assert "check the text" in text_of(second)
    shown.runner.run(tool.client.close())


@pytest.mark.parametrize(
    ("chord", "key", "held"),
    [
        ("ctrl+b", "b", [True, False, False]),
        ("shift+a", "A", [False, True, False]),
        ("alt+x", "x", [False, False, True]),
        ("ctrl+shift+up", "ArrowUp", [True, True, False]),
        ("ctrl++", "+", [True, True, False]),
        ("left", "ArrowLeft", [False, False, False]),
        ("right", "ArrowRight", [False, False, False]),
        ("up", "ArrowUp", [False, False, False]),
        ("down", "ArrowDown", [False, False, False]),
        ("pageup", "PageUp", [False, False, False]),
        ("esc", "Escape", [False, False, False]),
        ("f5", "F5", [False, False, False]),
        ("delete", "Delete", [False, False, False]),
        ("space", " ", [False, False, False]),
        ("+", "+", [False, True, False]),
        (",", ",", [False, False, False]),
    ],
)
def test_a_chord_arrives_with_its_modifiers_and_lets_go_of_them(bench, chord, key, held) -> None:
    bench.do("press", keys=[chord])
    downs = f"keys.filter(k => k[0] === 'keydown' && k[1] === {key!r})"
    assert bench.until(f"{downs}.length && keys.at(-1)[0] === 'keyup'"), bench.ask("keys")
    assert [event[2:] for event in bench.ask(downs)] == [held]
    bench.ask("keys.length = 0")
    bench.do("press", keys=["q"])
    assert bench.until("keys.length >= 2")
    assert bench.ask("keys[0]") == ["keydown", "q", False, False, False]


def test_nothing_stays_held_after_an_error(bench) -> None:
    """`press('Ctrl', 'nope')` sent Ctrl first; every letter after it was a shortcut."""
    assert bench.do("press", keys=["ctrl+nope"]).isError
    bench.do("press", keys=["q"])
    assert bench.until("keys.length >= 2")
    assert bench.ask("keys") == [
        ["keydown", "q", False, False, False],
        ["keyup", "q", False, False, False],
    ]


# ─── the pointer ──────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [640, 512, 320, 200, 97])
def test_clicks_reach_the_corner_pixels_at_every_scale(bench, width) -> None:
    """A kiosk without a window manager is one pixel short; a scale that floors misses the last."""
    tool = bench.tool
    bench.tool = ComputerTool(
        client=tool.client, config=ToolConfig(screenshot_width=width, settle=tool.config.settle)
    )
    try:
        right, bottom = (side - 1 for side in bench.tool.view.size)
        for x, y in ((0, 0), (right, 0), (0, bottom), (right, bottom)):
            result = bench.do("click", x=x, y=y)
            assert pixels(result).shape[:2] == (bottom + 1, right + 1)
        assert bench.until("log.filter(e => e[0] === 'click').length >= 4")
    finally:
        bench.tool = tool
    clicks = [event[1:3] for event in bench.ask("log") if event[0] == "click"]
    assert clicks == [[0, 0], [639, 0], [0, 599], [639, 599]]


@pytest.mark.parametrize(("action", "detail"), [("double_click", 2), ("triple_click", 3)])
def test_double_and_triple_clicks_are_what_they_say(bench, action, detail) -> None:
    """At 0 ms between the clicks an X server counts 7 of 12."""
    for turn in range(4):
        bench.ask("log.length = 0")
        bench.do(action, x=420 + 50 * turn, y=400)  # at one place they would go on counting
        assert bench.until(f"log.filter(e => e[0] === 'click').length >= {detail}")
        assert [e[4] for e in bench.ask("log") if e[0] == "click"] == list(range(1, detail + 1))


@pytest.mark.parametrize(("button", "mask"), [("left", 1), ("right", 2), ("middle", 4)])
def test_each_button_is_itself(bench, button, mask) -> None:
    bench.do("click", x=500, y=100, button=button)
    assert bench.until("log.some(e => e[0] === 'mouseup')")
    assert [e[3] for e in bench.ask("log") if e[0] == "mousedown"] == [mask]


def test_a_drag_follows_a_path_with_the_button_held(bench) -> None:
    bench.do("drag", x=400, y=200, to_x=600, to_y=500)
    assert bench.until("log.some(e => e[0] === 'mouseup')")
    log = bench.ask("log")
    held = [event for event in log if event[0] == "mousemove" and event[3] == 1]
    assert len(held) >= 8
    assert [e[1] for e in held] == sorted(e[1] for e in held)
    assert next(e for e in log if e[0] == "mouseup")[1:3] == [600, 500]


def test_the_wheel_scrolls_both_ways_and_sideways(bench) -> None:
    at = {"x": 200, "y": 300}
    bench.do("scroll", **at, scroll_y=5)
    assert bench.until("box.scrollTop > 100")
    bench.do("scroll", **at, scroll_x=5)
    assert bench.until("box.scrollLeft > 100")
    bench.do("scroll", **at, scroll_y=-20, scroll_x=-20)
    assert bench.until("box.scrollTop === 0 && box.scrollLeft === 0")


def test_the_first_key_needs_no_click(desktops, page) -> None:
    """The focus click of published tools can hit a button."""
    desktop = background.wait(desktops.borrow())
    background.wait(desktop.show(page))
    other = Bench(desktop)
    try:
        other.do("press", keys=["left"])
        assert other.until("keys.length >= 2")
        assert other.ask("log.filter(e => e[0] !== 'mousemove').length") == 0
    finally:
        other.close()
        background.wait(desktops.give_back(desktop))


# ─── settling ─────────────────────────────────────────────────────────


def test_a_frame_shows_what_an_action_led_to_even_when_it_moves_for_a_while(bench) -> None:
    """300 ms of sleep would show a page that slides for a second half way."""
    bench.ask(
        """(() => { const d = document.createElement('div'); d.id = 'slide';
        d.style = 'position:absolute;left:0;top:560px;width:40px;height:40px;background:red;'
          + 'transition:left 1000ms linear';
        document.body.append(d);
        addEventListener('keydown', e => { if (e.key === 's')
          d.style.left = d.style.left === '600px' ? '0px' : '600px'; }); })()"""
    )
    tool = bench.tool_with(settle=QuietFramebuffer(quiet_ms=200, react_ms=500, at_most_ms=5000))
    for turn in range(3):
        frame = pixels(bench.runner.run(tool.execute({"action": "press", "keys": ["s"]})))
        there, gone = (620, 20) if turn % 2 == 0 else (20, 620)
        assert tuple(frame[580, there]) == (255, 0, 0), turn
        assert tuple(frame[580, gone]) != (255, 0, 0), turn
    bench.runner.run(tool.client.close())
    bench.ask("document.querySelector('#slide').remove()")


def test_a_page_that_never_rests_is_shown_in_bounded_time(bench) -> None:
    import time

    tool = bench.tool_with(settle=QuietFramebuffer(quiet_ms=40, at_most_ms=300))
    bench.ask(
        "window.spin = setInterval(() => { pad.style.background ="
        " `hsl(${performance.now() % 360} 50% 50%)`; }, 15)"
    )
    began = time.perf_counter()
    result = bench.runner.run(tool.execute({"action": "screenshot"}))
    seconds = time.perf_counter() - began
    bench.ask("clearInterval(window.spin)")
    bench.runner.run(tool.client.close())
    assert not result.isError
    assert seconds < 3  # that it waits at all is test_settling's to show: this page may get no turn


# ─── servers that misbehave ───────────────────────────────────────────


def test_what_the_page_copies_does_not_desync_the_client(bench) -> None:
    """Cut text from the server reads as a Bell to asyncvnc, and the stream is lost."""
    bench.ask("text.focus(), text.value = 'copied', 1")
    before = bench.tool.client.conn
    bench.do("press", keys=["ctrl+a", "ctrl+c", "end", "ctrl+v"])
    assert bench.until("text.value === 'copiedcopied'")
    assert not bench.do("screenshot").isError
    assert bench.tool.client.conn is before


def test_a_frozen_server_is_dead_in_bounded_time_and_one_that_restarts_is_found_again() -> None:
    needs_chromium()

    async def scenario():
        desktop = await ChromiumDesktop(160, 120).start()
        port = desktop.port
        client = await Screen.connect(Capability.rfb(url=desktop.url))
        tool = ComputerTool(
            client=client, config=ToolConfig(screen_timeout_s=1.0, settle=QuietFramebuffer())
        )
        shapes = [pixels(await tool.execute({"action": "screenshot"})).shape]
        os.kill(desktop.pids[0], signal.SIGSTOP)
        try:
            async with asyncio.timeout(300):
                with pytest.raises(DeadScreen):
                    await tool._persistently(tool._read)
        finally:
            os.kill(desktop.pids[0], signal.SIGCONT)
        with desktop.hold_port():
            await desktop.close()
            with pytest.raises(DeadScreen):
                await tool.execute({"action": "screenshot"})
            # The same port, another size: a restarted desktop or a resized screen look like that.
            async with ChromiumDesktop(200, 180, port=port):
                shapes.append(pixels(await tool.execute({"action": "screenshot"})).shape)
                inside = await tool.execute({"action": "click", "x": 199, "y": 179})
                outside = await tool.execute({"action": "click", "x": 200, "y": 0})
        await client.close()
        return shapes, inside.isError, outside.isError

    shapes, inside, outside = asyncio.run(scenario())
    assert shapes == [(120, 160, 3), (180, 200, 3)]
    assert (inside, outside) == (False, True)
