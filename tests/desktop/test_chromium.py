"""A real browser as a desktop: boot, faults, and nothing that one episode leaves to the next."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hud.capabilities import Capability

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.screen import Screen
from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.computer.tool import ComputerTool
from cua_lab.desktop import background
from cua_lab.desktop.cdp import BrowserError, BrowserGone, CDPError
from cua_lab.desktop.chromium import ChromiumDesktop
from cua_lab.desktop.page_server import PageServer
from cua_lab.desktop.pool import DesktopPool
from cua_lab.errors import LabError
from tests.conftest import needs_chromium

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><title>t</title>
<style>body { margin: 0; height: 100vh; background: rgb(0, 128, 128) }</style>
<input id="field" autofocus>"""
PARENT = """
import asyncio
from cua_lab.desktop.chromium import ChromiumDesktop

async def main():
    desktop = await ChromiumDesktop(160, 160).start()
    print(*desktop.pids, desktop.port, desktop._guard.folder, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    (folder / "page.html").write_text(PAGE)
    with PageServer({"test": folder}) as server:
        yield server.url("test/page.html")


def on(desktops: DesktopPool, scenario):
    """Run a scenario on a borrowed desktop, in a loop of its own."""

    async def main():
        async with asyncio.timeout(60), desktops.lend() as desktop:
            return await scenario(desktop)

    return asyncio.run(main())


async def tool_on(desktop: ChromiumDesktop) -> ComputerTool:
    client = await Screen.connect(Capability.rfb(url=desktop.url))
    return ComputerTool(client=client, config=ToolConfig(settle=QuietFramebuffer(react_ms=200)))


def test_a_desktop_boots_to_a_page_that_fills_the_screen(page) -> None:
    """How fast is the bench's to say; a machine shared with other work boots it in seconds."""
    needs_chromium()

    async def scenario():
        async with ChromiumDesktop(320, 240) as desktop:
            await desktop.show(page)
            tool = await tool_on(desktop)
            frame = await tool.frame()
            await tool.client.close()
        return frame

    frame = asyncio.run(scenario())
    assert frame.shape == (240, 320, 3)
    for y, x in ((-1, 0), (0, -1), (-30, -1), (120, 160)):  # the pointer is in the last corner
        assert tuple(frame[y, x]) == (0, 128, 128)


def test_a_killed_parent_leaves_no_process_no_file_and_no_port() -> None:
    needs_chromium()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    xvnc, chromium, port, folder = parent.stdout.readline().split()
    family = psutil.Process(parent.pid).children(recursive=True)
    assert {int(xvnc), int(chromium)} <= {process.pid for process in family}
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        alive = [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive and not Path(folder).exists():
            break
        time.sleep(0.05)
    assert not alive
    assert not Path(folder).exists()
    listening = {c.laddr.port for c in psutil.net_connections("inet") if c.status == "LISTEN"}
    assert int(port) not in listening


def test_it_listens_on_loopback_alone(desktops) -> None:
    async def scenario(desktop):
        listening = []
        for pid in desktop.pids:
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):  # a renderer comes and goes
                    held = process.net_connections()
                    listening += [c.laddr for c in held if c.status == "LISTEN"]
        return listening, desktop.port

    listening, port = on(desktops, scenario)
    assert [tuple(address) for address in listening] == [("127.0.0.1", port)]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.error('low on', 3)", "console error: low on 3"),
        ("setTimeout(() => { throw new Error('late') })", "uncaught Error: late"),
        ("void fetch('nothing.json')", "404"),
        ("void Promise.reject(new TypeError('lost'))", "uncaught TypeError: lost"),
    ],
)
def test_what_the_page_complains_about_is_a_failure(desktops, page, script, complaint) -> None:
    async def scenario(desktop):
        await desktop.show(page)
        await desktop.check()
        await desktop.evaluate(script)
        for _ in range(100):
            if desktop.faults:
                break
            await asyncio.sleep(0.02)
        with pytest.raises(BrowserError, match=complaint):
            await desktop.check()
        await desktop.show(page)
        await desktop.check()

    on(desktops, scenario)


def test_a_page_that_crashes_is_a_failure_and_the_next_page_is_not(desktops, page) -> None:
    async def scenario(desktop):
        await desktop.show(page)
        with pytest.raises(BrowserError):
            await background.run(desktop._call("Page.crash", timeout_s=1.0))
        with pytest.raises(BrowserError, match="crashed"):
            await desktop.check()
        await desktop.show(page)
        await desktop.check()
        assert await desktop.evaluate("1 + 1") == 2

    on(desktops, scenario)


def test_a_page_that_is_not_there_is_named(desktops) -> None:
    async def scenario(desktop):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(BrowserError, match=f"{port}: .*refused"):
            await desktop.show(f"http://127.0.0.1:{port}/")

    on(desktops, scenario)


def test_nothing_outside_can_be_reached(desktops) -> None:
    async def scenario(desktop):
        with pytest.raises(BrowserError, match="servers on this machine alone"):
            await desktop.show("http://example.org/")

    on(desktops, scenario)


REACH = {
    "fetch": "void fetch(AT, {method: 'POST', mode: 'no-cors', body: 'x'}).catch(() => {})",
    "other host": "void fetch(AT.replace('127.0.0.1', 'x.localhost'), {mode: 'no-cors'})",
    "image": "void (new Image().src = AT)",
    "frame": "void document.body.insertAdjacentHTML('beforeend', `<iframe src=${AT}>`)",
    "form": "void document.body.insertAdjacentHTML('beforeend', `<form action=${AT} method=post>`),"
    " document.forms[0].submit()",
    "popup": "void open(AT)",
    "navigation": "void (location = AT)",
    "web socket": "void new WebSocket(AT.replace('http', 'ws'))",
    "event source": "void new EventSource(AT)",
    "beacon": "navigator.sendBeacon(AT, 'x')",
    "worker": "void new Worker(URL.createObjectURL(new Blob([`fetch('${AT}')`])))",
}  # fmt: skip


@pytest.mark.parametrize("way", REACH)
def test_a_page_reaches_no_other_server_of_this_machine(desktops, page, way) -> None:
    """A text/plain POST from a page in our own browser changed a model server's weights."""

    async def scenario(desktop):
        heard = []

        async def serve(reader, writer):
            heard.append((await reader.read(4096)).split(b"\r\n")[0])
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        at = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/update"
        await desktop.show(page)
        await desktop.evaluate(REACH[way].replace("AT", repr(at)))
        for _ in range(200):
            if desktop._proxy.notes or heard:
                break
            await asyncio.sleep(0.02)
        refused, notes = list(heard), list(desktop._proxy.notes)
        await desktop.show(page, reach=[at])
        await desktop.evaluate(f"fetch({at!r}, {{mode: 'no-cors'}}).then(() => 1)")
        server.close()
        return refused, notes, heard

    refused, notes, heard = on(desktops, scenario)
    assert refused == []
    assert "none of the page's own servers" in notes[0]
    assert heard == [b"GET /update HTTP/1.1"]


def test_an_episode_finds_nothing_of_the_one_before(desktops, page) -> None:
    """Cookies, storage, zoom, clipboard, tabs, dialogs, held keys, scroll, the pointer."""

    async def scenario(desktop):
        await desktop.show(page)
        tool = await tool_on(desktop)
        await tool.execute({"action": "type", "text": "secret"})
        await tool.execute({"action": "press", "keys": ["ctrl+a", "ctrl+c", "ctrl+plus"]})
        await desktop.evaluate(
            "document.cookie = 'a=1'; localStorage.b = 2; void open('page.html')"
        )
        await desktop.evaluate("void setTimeout(() => alert('still here'))")
        tool._key(0xFFE3, down=True)
        await tool._flush()
        await tool.client.close()

        await desktop.show(page)
        tool = await tool_on(desktop)
        await tool.execute({"action": "press", "keys": ["ctrl+v", "x"]})
        left = await desktop.evaluate(
            "[document.cookie, localStorage.length, devicePixelRatio, field.value]"
        )
        here = await desktop.evaluate("location.href")
        await tool.execute({"action": "press", "keys": ["alt+left"]})
        assert await desktop.evaluate("location.href") == here
        await tool.client.close()
        return left

    assert on(desktops, scenario) == ["", 0, 1, "x"]


def test_an_alert_that_opens_while_the_page_is_left_keeps_no_episode_waiting(
    desktops, page
) -> None:
    """Between two pages CDP cannot dismiss it: one race in ten on a busy machine."""

    async def scenario(desktop):
        for wait in (0, 0, 0, 0.002, 0.005, 0.01) * 2:
            await desktop.show(page)
            await desktop.evaluate("void open('page.html')")
            await desktop.evaluate("void setTimeout(() => alert('still here'))")
            await asyncio.sleep(wait)
        await desktop.show(page)
        await desktop.check()

    on(desktops, scenario)


def test_a_page_that_cannot_be_left_is_closed_with_its_tab(desktops, page, monkeypatch) -> None:
    """Its dialog stays whatever is answered, as in the race above."""

    async def scenario(desktop):
        await desktop.show(page)
        tool = await tool_on(desktop)
        await tool.execute({"action": "type", "text": "a"})  # without a gesture nobody is asked
        await tool.client.close()
        await desktop.evaluate("void addEventListener('beforeunload', e => e.preventDefault())")
        call, before = desktop._call, desktop._target

        async def deaf(method, **params):
            if method == "Page.handleJavaScriptDialog":
                raise CDPError(f"{method}: Not attached to an active page")
            return await call(method, **params)

        monkeypatch.setattr(desktop, "_call", deaf)
        await desktop.show(page)
        assert desktop._target != before
        assert await desktop._pages() == [desktop._target]
        tool = await tool_on(desktop)
        await tool.execute({"action": "type", "text": "b"})
        await tool.client.close()
        return await desktop.evaluate("[field.value, innerWidth]"), desktop.size

    (typed, width), size = on(desktops, scenario)
    assert typed == "b"
    assert width >= size[0]


def test_the_same_page_starts_from_the_same_pixels(desktops, page) -> None:
    """A group of episodes shares its start; a pointer left somewhere would be drawn there."""

    async def scenario(desktop):
        frames = []
        for at in ((10, 10), (300, 300)):
            await desktop.show(page)
            tool = await tool_on(desktop)
            frames.append((await tool.frame())[100:].copy())
            await tool.execute({"action": "move", "x": at[0], "y": at[1]})
            await tool.client.close()
        return frames

    first, second = on(desktops, scenario)
    assert (first == second).all()


def test_a_browser_that_was_killed_is_told_from_a_living_one() -> None:
    needs_chromium()

    async def scenario():
        async with ChromiumDesktop(160, 160) as desktop:
            assert desktop.alive
            os.kill(desktop.pids[1], signal.SIGKILL)
            with pytest.raises(BrowserGone):
                await desktop.evaluate("new Promise(() => {})")
            assert not desktop.alive
            with pytest.raises(BrowserGone):
                await desktop.check()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((10, 600), "64 to 4096"), ((640, 600, 9.0), "scale must be")],
)
def test_a_size_that_cannot_be_is_refused_before_anything_starts(arguments, words) -> None:
    width, height, *scale = arguments
    with pytest.raises(LabError, match=words):
        ChromiumDesktop(width, height, scale=scale[0] if scale else 1.0)


@pytest.mark.parametrize(
    ("absent", "package"), [("chromium", "chromium"), ("xvnc", "tigervnc-standalone-server")]
)
def test_a_missing_program_is_named_with_its_package(monkeypatch, absent, package) -> None:
    from cua_lab.desktop import chromium, xvnc

    monkeypatch.setattr({"chromium": chromium, "xvnc": xvnc}[absent], "PROGRAMS", ("no-such",))
    if absent == "xvnc":
        monkeypatch.setattr(chromium, "program", lambda: "/bin/true")

    async def scenario():
        await ChromiumDesktop(160, 160).start()

    with pytest.raises(LabError, match=f"apt-get install {package}"):
        asyncio.run(scenario())
