"""Nothing of an episode reaches the next one: whatever it pressed, an expert gets 1.0 after it.

One desktop for all, so that each row plays on what the row before it left. A desktop that cannot be
made as new may be replaced; it may not be lent.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest
from hud.capabilities import Capability

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.computer.tool import ComputerTool
from cua_lab.demonstrators.expert_play import expert_config, play_expert
from cua_lab.desktop import background
from cua_lab.desktop.cdp import BrowserError
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.page_server import PageServer
from cua_lab.desktop.pool import DesktopPool
from tests.conftest import needs_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PAGE = """<!doctype html><meta charset="utf-8"><title>first</title>
<style>
  * { box-sizing: border-box } body { margin: 0 }
  body > * { display: block; height: 20px; width: 160px; padding: 0; border: 0; font-size: 12px }
</style>
<input id="text" value="secret">
<input id="file" type="file">
<select id="list"><option>a<option>b<option>c</select>
<input id="colour" type="color">
<input id="date" type="date">
<a id="mail" href="mailto:a@example.org">mail</a>
<a id="save" href="data:text/plain,kept" download="kept.txt">save</a>
<a id="new" href="page.html" target="_blank">new</a>
<button id="act">act</button>
<script>let act = () => {}; document.querySelector("#act").onclick = () => act();</script>
"""
PROBE = """<!doctype html><meta charset="utf-8"><textarea id="text" autofocus></textarea>
<script>
  const keys = [];
  addEventListener("keydown", e => keys.push(
    [e.key, e.shiftKey, ...["CapsLock", "NumLock", "ScrollLock"].map(l => e.getModifierState(l))]
  ), true);
</script>
"""
ROWS = {name: 10 + 20 * index for index, name in enumerate(
    ("text", "file", "list", "colour", "date", "mail", "save", "new", "act")
)}  # fmt: skip
"""Where each element of the page is, in CSS pixels from the top."""


def press(*keys):
    return {"action": "press", "keys": list(keys)}


def click(name, button="left"):
    return {"action": "click", "x": 80, "y": 2 * ROWS[name], "button": button}


def on_click(script):
    """A click, with which a page may do what it may not do unasked."""
    return f"act = () => {{ {script} }}"


LEAKS = {
    "save as": [press("ctrl+s")],
    "open": [press("ctrl+o")],
    "file input": [click("file")],
    "file picker": [on_click("showOpenFilePicker().catch(() => {})"), click("act")],
    "alert": ["void setTimeout(() => alert('still here'))"],
    "confirm": ["void setTimeout(() => confirm('well?'))"],
    "prompt": ["void setTimeout(() => prompt('well?'))"],
    "before unload": [
        "addEventListener('beforeunload', e => e.preventDefault())", click("text"), press("x"),
    ],
    "print": [press("ctrl+p")],
    "print by the page": ["void setTimeout(() => print())"],
    "download": [click("save")],
    "mail": [click("mail")],
    "caps lock": [press("capslock")],
    "num lock": [press("numlock")],
    "all locks": [press("capslock", "numlock", "scrolllock")],
    "capitals": [{"action": "type", "text": "\bABC"}],
    "keypad": [press("kp5")],
    "a dead key": [click("text"), press("dead_acute")],
    "a begun composition": [click("text"), press("Multi_key", "'")],
    "clipboard": [click("text"), press("ctrl+a", "ctrl+c")],
    "selection": [click("text"), press("ctrl+a")],
    "zoom": [press("ctrl+plus", "ctrl+plus")],
    "zoom out": [press("ctrl+minus")],
    "geolocation": ["navigator.geolocation.getCurrentPosition(() => {})"],
    "clipboard permission": [on_click("navigator.clipboard.readText()"), click("act")],
    "microphone": ["navigator.mediaDevices?.getUserMedia({audio: true}).catch(() => {}), 1"],
    "notifications": [on_click("Notification.requestPermission()"), click("act")],
    "new tab": [press("ctrl+t")],
    "new window": [press("ctrl+n")],
    "private window": [press("ctrl+shift+n")],
    "link in a new tab": [click("new")],
    "popup": [on_click("open('page.html', '', 'width=100,height=100')"), click("act")],
    "many windows": ["for (let i = 0; i < 5; i++) void open('page.html')"],
    "closed tab": [press("ctrl+w")],
    "closed window": [press("alt+f4")],
    "context menu": [click("text", "right")],
    "browser menu": [press("alt+f")],
    "menu key": [press("f10")],
    "focus elsewhere": [press("f6", "f6")],
    "address bar": [press("ctrl+l")],
    "find bar": [press("ctrl+f"), press("q")],
    "list popup": [click("list")],
    "colour popup": [click("colour")],
    "date popup": [click("date"), press("f4")],
    "full screen": [on_click("document.documentElement.requestFullscreen()"), click("act")],
    "left full screen": [press("f11")],
    "pointer lock": [on_click("document.body.requestPointerLock()"), click("act")],
    "keyboard lock": [
        on_click("document.body.requestFullscreen().then(() => navigator.keyboard.lock())"),
        click("act"),
    ],
    "developer tools": [press("f12")],
    "console": [press("ctrl+shift+j")],
    "source": [press("ctrl+u")],
    "task manager": [press("shift+escape")],
    "history page": [press("ctrl+h")],
    "downloads page": [press("ctrl+j")],
    "help": [press("f1")],
    "caret browsing": [press("f7")],
    "bookmark": [press("ctrl+d")],
    "clear data": [press("ctrl+shift+delete")],
    "pointer": [{"action": "move", "x": 100, "y": 300}],
    "scroll": [{"action": "scroll", "x": 100, "y": 300, "scroll_y": 5}],
    "storage": [
        "document.cookie = 'a=1', localStorage.a = 1, sessionStorage.a = 1, indexedDB.open('a'),"
        " caches.open('a'), navigator.serviceWorker.register('worker.js').then(() => 1)"
    ],
    "all spare keys": [
        click("text"), {"action": "type", "text": "".join(map(chr, range(0x3B1, 0x3C9)))},
    ],
    "an endless script": ["void setTimeout(() => { for (;;) {} })"],
    "a crash": ["location = 'chrome://crash'"],
}  # fmt: skip

SELDOM = {
    "confirm", "prompt", "print by the page", "all locks", "selection", "zoom out",
    "clipboard permission", "microphone", "notifications", "new tab", "private window", "popup",
    "many windows", "menu key", "focus elsewhere", "address bar", "find bar", "colour popup",
    "left full screen", "keyboard lock", "console", "source", "history page", "downloads page",
    "help", "bookmark", "clear data", "scroll", "mail",
}  # fmt: skip
"""Of a kind that another row stands for; they play at night."""


def rows():
    night = [pytest.mark.nightly]
    return [pytest.param(leak, marks=night if leak in SELDOM else []) for leak in LEAKS]


@pytest.fixture(scope="module")
def only():
    """A pool of one."""
    needs_chromium()
    pytest.importorskip("miniwob", reason="MiniWoB++ is not installed: pip install -e '.[browser]'")
    pool = background.wait(DesktopPool(1, 320, 420, scale=2.0).start())
    yield pool
    background.wait(pool.close())


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "page.html").write_text(PAGE)
    (folder / "probe.html").write_text(PROBE)
    (folder / "worker.js").write_text("addEventListener('fetch', () => {})")
    with PageServer({"test": folder}) as server:
        yield lambda name: server.url(f"test/{name}.html")


async def tool_on(desktop: ChromiumDesktop) -> ComputerTool:
    client = await Screen.connect(Capability.rfb(url=desktop.url))
    return ComputerTool(client=client, config=ToolConfig(settle=QuietFramebuffer(react_ms=100)))


async def misbehave(desktop: ChromiumDesktop, url: str, steps: list) -> None:
    """An episode that does this; what happens to it is its own affair."""
    await desktop.show(url)
    tool = await tool_on(desktop)
    with contextlib.suppress(BrowserError):
        for step in steps:
            if isinstance(step, dict):
                assert not (await tool.execute(step)).isError, step
            else:
                await desktop.evaluate(step, timeout_s=2.0)
    await tool.client.close()


def files_of(desktop: ChromiumDesktop) -> list[str]:
    """What lies where a browser saves to."""
    home = Path(desktop._guard.folder) / "home"
    return [str(p) for p in home.rglob("*") if p.is_file() and ".c" not in str(p)]


@pytest.mark.parametrize("leak", rows())
def test_an_expert_gets_its_reward_after(only, pages, leak) -> None:
    """A dialog of the toolkit's own took every later key: experts went from 1.0 to -1.0
    (browser-use/browser-use#4681, guysoft/FullPageOS#300)."""

    async def scenario():
        async with asyncio.timeout(120):
            async with only.lend() as desktop:
                await misbehave(desktop, pages("page"), LEAKS[leak])
            async with only.lend() as desktop:
                episode = await play_expert(desktop, "enter-text", 1, config=expert_config())
                saved = files_of(desktop)
            async with only.lend() as desktop:
                await desktop.show(pages("probe"))
                tool = await tool_on(desktop)
                await tool.execute({"action": "type", "text": "eñŒ"})
                await tool.execute(press("ctrl+v", "kpmultiply"))
                probe = await desktop.evaluate(
                    "(async () => [text.value, keys.filter(k => k[2] || k[3] || k[4]),"
                    " devicePixelRatio, document.cookie, localStorage.length,"
                    " sessionStorage.length, (await caches.keys()).length,"
                    " (await indexedDB.databases()).length,"
                    " (await navigator.serviceWorker.getRegistrations()).length])()"
                )
                await tool.client.close()
        return episode, saved, probe

    episode, saved, probe = asyncio.run(scenario())
    assert (episode.reward, episode.error) == (1.0, None)
    assert saved == []
    assert probe == ["eñŒ*", [], 2, "", 0, 0, 0, 0, 0]
