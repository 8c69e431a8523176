"""A real browser on a real X server, as one desktop.

    ChromiumDesktop = Guard (private folder) + Xvnc (screen, RFB) + Chromium (kiosk) + CDP (pipe)

The policy has the screen alone; environments and experts may also ask the page (`evaluate`).
Invariant: whatever the page or the browser complains about since the last `show` is in `faults`,
and `check` raises it, so that an episode on a broken page is a failure and never a grade.

Every method may be awaited from any event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import socket
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from cua_lab.desktop import background, roundtrip
from cua_lab.desktop.cdp import CDP, MESSAGE_LIMIT, BrowserError, BrowserGone, CDPError, Event
from cua_lab.desktop.guard import Guard
from cua_lab.desktop.keymap import Keymap, read_keymap, restore_keymap
from cua_lab.desktop.page_look import PageLook
from cua_lab.desktop.proxy import PageProxy, address_of, is_loopback_name
from cua_lab.desktop.screen_context import Point, ScreenContext, register, unknown, unregister
from cua_lab.desktop.start_failures import not_started
from cua_lab.desktop.xvnc import Xvnc, start_xvnc
from cua_lab.errors import LabError
from cua_lab.waiting import waiting

Part = TypeVar("Part")

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
BLANK = "about:blank"
BOOT_S = 20.0
BLANK_S = 15.0
"""Until the page of an episode has been left, whatever it is doing."""
FAULTS_KEPT = 20
PIPE = 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2'
"""Chromium talks CDP on descriptors 3 and 4."""
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
"""Two frames: the first draws what the page became, the second begins after it was shown."""
SHOWN = """
new Promise(done => {
  const end = performance.now() + %d;
  const look = () => {
    const painted = performance.getEntriesByType("paint").length > 0;
    const focused = Document.prototype.hasFocus.call(document);
    if ((painted && focused) || performance.now() > end) return done(1);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
"""A page's first paint is entered when the screen had it (Paint Timing, W3C), on a busy machine
later than its second frame; and a page without the focus loses its first key. A page with nothing
on it is never painted: it is waited for so many milliseconds and no longer."""
UNFOCUSED = "document.activeElement?.blur(); getSelection().removeAllRanges()"
EMPTY_CLIPBOARD = """\
addEventListener("copy", event => {
  event.clipboardData.setData("text/plain", "");
  event.preventDefault();
}, {once: true});
document.execCommand("copy")"""
SHOWN_MS = 500
FLAGS = (
    "--test-type",  # hides the warning bar that --no-sandbox shows
    "--kiosk", "--window-position=0,0", "--remote-debugging-pipe",
    "--no-first-run", "--no-default-browser-check", "--disable-default-apps",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-domain-reliability", "--disable-client-side-phishing-detection",
    "--disable-breakpad", "--disable-crash-reporter", "--metrics-recording-only",
    "--disable-extensions", "--disable-notifications", "--disable-popup-blocking",
    "--disable-search-engine-choice-screen", "--disable-session-crashed-bubble",
    "--disable-smooth-scrolling", "--disable-pinch", "--overscroll-history-navigation=0",
    "--allow-pre-commit-input",  # else keys before a page's first frame are dropped
    "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio", "--lang=en-US",
    "--password-store=basic", "--use-mock-keychain", "--force-color-profile=srgb",
    "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding", "--deny-permission-prompts",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,"
    "PasswordManagerOnboarding,DialMediaRouteProvider,GlobalMediaControls,PaintHolding,"
    "BackForwardCache",  # it would keep the renderers of past episodes
    # Loopback pages only; *.localhost needs no resolver.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, "
    "EXCLUDE *.localhost",
)  # fmt: skip
PREFERENCES = {
    "autofill": {"enabled": False, "profile_enabled": False, "credit_card_enabled": False},
    "credentials_enable_service": False,
    "profile": {"password_manager_enabled": False, "exit_type": "Normal"},
    "translate": {"enabled": False},
    "browser": {"enable_spellchecking": False},
    "download": {"prompt_for_download": False},
    "download_bubble": {"enabled": False},
    "printing": {"enabled": False},
    "incognito": {"mode_availability": 1},  # none
    "policy": {
        "url_blocklist": ["file://*", "chrome://*", "view-source:*", "devtools://*", "ftp://*"]
    },
}
"""No bubbles, no print dialog, and nothing that one episode types is offered to the next. The last
is what the policy URLBlocklist sets: Ctrl+N opens a window with an address bar, and an address such
as file:///etc/passwd typed there showed the file to whoever looks at the screen."""
LOCAL_STATE = {"select_file_dialogs": {"allowed": False}}
"""What the policy AllowFileSelectionDialogs sets: a dialog of the toolkit's own keeps the keyboard,
and every later episode on that screen is deaf (browser-use/browser-use#4681)."""


class ChromiumDesktop(background.Lifetime):
    """One browser that fills one screen. Use it as `async with`, or `start` and `close` it."""

    def __init__(
        self,
        width: int = 640,
        height: int = 600,
        *,
        scale: float = 1.0,
        port: int | None = None,
    ) -> None:
        """`scale` is screen pixels per CSS pixel; `port` a fixed RFB port instead of a free one."""
        if not (64 <= width <= 4096 and 64 <= height <= 4096):
            raise LabError(f"a screen is 64 to 4096 pixels wide and high; got {width}x{height}")
        if not 0.5 <= scale <= 4:
            raise LabError(f"scale must be from 0.5 to 4 screen pixels per CSS pixel; got {scale}")
        self.size = (width, height)
        self.scale = scale
        self.faults: list[str] = []
        self.page: str | None = None
        """The address that it shows, as `show` was given it; `None` is an empty page."""
        self._port = port
        self._guard: Guard | None = None
        self._xvnc: Xvnc | None = None
        self._proxy = PageProxy()
        self._cdp: CDP | None = None
        self._chromium: asyncio.subprocess.Process | None = None
        self._target = self._session = ""
        self._loaded = asyncio.Event()
        self._leaving = False  # a dialog that opens now would keep the page
        self._kept = asyncio.Event()  # one did, and cannot be dismissed
        self._dismissing: asyncio.Task[None] | None = None
        self._keymap: Keymap | None = None
        """The X server's keys as they were before anybody typed."""
        self._booted: roundtrip.Heard | None = None
        """What the first page was like; every later one is of that size."""
        self._look = PageLook(self._call)
        self._dialog: str | None = None  # of the page, open now: its scripts wait
        self._hosts = itertools.count(1)
        self._used: set[str] = set()  # hosts of the page that is shown, with their ports
        self._untouched = False  # since the last `show(BLANK)`, which nobody can do anything with

    # ─── life ─────────────────────────────────────────────────────────

    @property
    def url(self) -> str:
        """Where the screen is: `rfb://127.0.0.1:port`."""
        return self._need(self._xvnc).url

    @property
    def port(self) -> int:
        """The RFB port."""
        return self._need(self._xvnc).port

    def hold_port(self) -> socket.socket:
        """Keep the RFB port for a desktop that is to boot on it after this one; close it then."""
        return self._need(self._xvnc).held.dup()

    @property
    def pids(self) -> tuple[int, ...]:
        """The X server and the browser."""
        return (self._need(self._xvnc).process.pid, self._need(self._chromium).pid)

    @property
    def alive(self) -> bool:
        """Whether the X server and the browser both run."""
        if self._xvnc is None or self._cdp is None or self._chromium is None:
            return False
        ended = (self._xvnc.process.returncode, self._chromium.returncode)
        return ended == (None, None) and not self._cdp.gone

    # ─── pages ────────────────────────────────────────────────────────

    async def show(self, url: str, *, timeout_s: float = 15.0, reach: Sequence[str] = ()) -> None:
        """Show a page as if nobody had used this browser before: no cookies, storage, zoom,
        clipboard, other tabs, held keys. Returns when the page is drawn.

        A loopback page is shown under a host name of its own, `e17.localhost`: zoom and storage
        belong to a host, so those of other episodes cannot reach it. The page reaches its own
        server and those at the loopback addresses in `reach`; no other of this machine, nor any
        beyond it.
        """
        await background.run(self._show(url, timeout_s, reach))

    async def rest(self) -> None:
        """Let go of the page without leaving it: pointer in the corner, nothing focused."""
        await background.run(self._rest())

    async def evaluate(self, expression: str, *, timeout_s: float = 10.0) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        return await background.run(self._evaluate(expression, timeout_s))

    async def drawn(self) -> None:
        """Wait until the page has drawn what it is now."""
        await self.evaluate(DRAWN)

    async def look(self, at: Point | None, to: Point | None) -> ScreenContext:
        """What lies at these pixels of the screen, and what has the focus."""
        return await background.run(self._looked(at, to))

    async def check(self) -> None:
        """Raise what the page or the browser has complained about since the last `show`."""
        if not self.alive:
            raise BrowserGone(f"the browser ended; its last words:\n{self.last_words()}")
        if self.faults:
            raise BrowserError("the page failed: " + "; ".join(self.faults))

    def last_words(self) -> str:
        """The end of the browser's own log."""
        return "" if self._guard is None else self._guard.log("chromium.log")

    # ─── inside the background loop ───────────────────────────────────

    async def _start(self) -> None:
        if self._guard is not None:
            raise LabError("this desktop was started before; make a new one")
        chromium, self._guard = program(), await Guard.open()
        try:
            self._xvnc = await start_xvnc(self._guard, self.size, port=self._port)
            await self._proxy.start()
            async with waiting("Chromium to boot", BOOT_S):
                await self._start_chromium(chromium, self._guard, self._xvnc.display)
                await self._attach()
                await self._evaluate(DRAWN, BOOT_S)
                self._booted = await self._first_heard(self._xvnc)
                self._keymap = await read_keymap(self._xvnc.display)
            register(self.url, self.look)
        except (BrowserError, OSError) as error:  # TimeoutError is an OSError
            logs = [self._guard.log(name, 60) for name in ("chromium.log", "xvnc.log")]
            await self._close()
            raise not_started(error, *logs) from error
        except BaseException:
            await self._close()
            raise

    async def _first_heard(self, xvnc: Xvnc) -> roundtrip.Heard:
        """The first round trip; on a busy machine a new window may not take the focus at once."""
        for _ in range(2):
            await self._call("Page.bringToFront")
            with contextlib.suppress(roundtrip.Deaf):
                return await roundtrip.unlocked(self._evaluate, xvnc)
        await self._call("Page.bringToFront")
        return await roundtrip.unlocked(self._evaluate, xvnc)

    async def _start_chromium(self, path: str, guard: Guard, display: int) -> None:
        profile = guard.folder / "profile"
        (profile / "Default").mkdir(parents=True)
        (profile / "Default" / "Preferences").write_text(json.dumps(PREFERENCES))
        (profile / "Local State").write_text(json.dumps(LOCAL_STATE))
        # Without a window manager a kiosk is one pixel short, and clicks in the corners are lost.
        width, height = (int(side / self.scale) + 1 for side in self.size)
        self._chromium = await guard.start(
            "/bin/sh", "-c", PIPE, "chromium", path, *FLAGS, *_sandbox(),
            f"--window-size={width},{height}", f"--force-device-scale-factor={self.scale:g}",
            f"--user-data-dir={profile}",
            f"--proxy-server=http://127.0.0.1:{self._proxy.port}",
            "--proxy-bypass-list=<-loopback>",  # else pages reach every server of this machine
            BLANK,
            env={"DISPLAY": f":{display}"},
            log="chromium.log", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=MESSAGE_LIMIT,
        )  # fmt: skip
        reader, writer = self._chromium.stdout, self._chromium.stdin
        assert reader is not None
        assert writer is not None
        self._cdp = CDP(reader, writer, self._heard)
        # Nobody is asked, nothing is kept: a download would lie there for the next episode.
        await self._cdp.call("Browser.setDownloadBehavior", behavior="deny")

    async def _attach(self) -> None:
        """Find the page, or open one, and listen to it."""
        pages = await self._pages()
        for _ in range(200):
            if pages:
                break
            await asyncio.sleep(0.01)  # the browser answers before its first window is there
            pages = await self._pages()
        await self._attach_to(pages[0] if pages else await self._new_page())

    async def _attach_to(self, target: str) -> None:
        cdp = self._need(self._cdp)
        attached = await cdp.call("Target.attachToTarget", targetId=target, flatten=True)
        self._target, self._session = target, attached["sessionId"]
        self._dialog = None  # one that kept another tab open went with it
        for domain in ("Page", "Runtime", "Log", "Inspector", "Network"):
            await self._call(f"{domain}.enable")

    async def _pages(self) -> list[str]:
        """The tabs. Chromium's own address bar has pages too, which cannot be closed."""
        found = await self._need(self._cdp).call("Target.getTargets")
        return [
            t["targetId"]
            for t in found["targetInfos"]
            if t["type"] == "page" and ".top-chrome/" not in t["url"]
        ]

    async def _new_page(self) -> str:
        made = await self._need(self._cdp).call("Target.createTarget", url=BLANK)
        return str(made["targetId"])

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._need(self._cdp).call(method, session=self._session, **params)

    async def _show(self, url: str, timeout_s: float, reach: Sequence[str]) -> None:
        ports = {port for address in (url, *reach) if (port := _port_of(address))}
        if not self._untouched:
            await self._forget()
        self._proxy.ports = ports
        self._untouched, self.page = url == BLANK, None
        self.faults.clear()
        if url != BLANK:
            await self._navigate(self._own_host(url), timeout_s)
            await self._call("Page.resetNavigationHistory")  # alt+left leads nowhere
            await self._evaluate(DRAWN, timeout_s)
            with contextlib.suppress(BrowserError):  # a dialog may open as the page does
                await self._evaluate(SHOWN % SHOWN_MS, 1.0)
            self.page = url

    async def _navigate(self, url: str, timeout_s: float) -> None:
        self._loaded.clear()
        self._proxy.notes.clear()
        answer = await self._call("Page.navigate", url=url, timeout_s=timeout_s)
        if "errorText" in answer:
            why = "; ".join([answer["errorText"], *self._proxy.notes[-1:]])
            raise BrowserError(f"{url} cannot be shown: {why}")
        try:
            async with waiting(f"{url} to load", timeout_s):
                await self._loaded.wait()
        except TimeoutError as error:
            raise BrowserError(f"{url} was not loaded within {timeout_s:g} s") from error

    async def _forget(self) -> None:
        """Leave no trace of the last episode."""
        cdp = self._need(self._cdp)
        if self._target not in await self._pages() or self._crashed:
            await self._attach_to(await self._new_page())
        asked: set[str] = set()
        await self._close_others(asked)  # a dialog of theirs would be in front
        await self._leave()
        try:
            async with waiting("the other tabs to close", BLANK_S):  # also those it opened just now
                while not await self._close_others(asked):
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise BrowserError(f"the other tabs did not close within {BLANK_S:g} s") from error
        await self._call("Runtime.evaluate", expression=EMPTY_CLIPBOARD, userGesture=True)
        await self._call("Network.clearBrowserCookies")
        await cdp.call("Browser.resetPermissions")
        await self._clear_storage()
        await self._call("Page.bringToFront")  # without a window manager nobody else gives focus
        await restore_keymap(self._need(self._xvnc).display, self._need(self._keymap))
        await self._hears()

    async def _leave(self) -> None:
        """Go to the empty page; a page that cannot be left is closed with its tab.

        An `alert` that opens while the browser swaps two pages belongs to neither: CDP says "Not
        attached to an active page", whatever is asked of it, and the load never ends.
        """
        self._leaving = True
        self._kept.clear()
        await self._dismiss()
        leaving = asyncio.create_task(self._navigate(BLANK, BLANK_S))
        kept = asyncio.create_task(self._kept.wait())
        try:
            await asyncio.wait({leaving, kept}, return_when=asyncio.FIRST_COMPLETED)
            if self._kept.is_set():
                raise BrowserError("a dialog keeps the page")
            await leaving
        except BrowserError:
            if not self.alive:
                raise
            await self._attach_to(await self._new_page())
        finally:
            self._leaving = False
            for task in (leaving, kept):
                task.cancel()
            await asyncio.gather(leaving, kept, return_exceptions=True)

    async def _close_others(self, asked: set[str]) -> bool:
        """Have every tab but ours closed that was not yet asked to; whether there are none left."""
        others = {page for page in await self._pages() if page != self._target}
        for other in others - asked:
            with contextlib.suppress(CDPError):  # it may close itself
                await self._need(self._cdp).call("Target.closeTarget", targetId=other)
        asked |= others
        return not others

    async def _clear_storage(self) -> None:
        """Storage and service workers, which go on working, of the hosts that a page was under."""
        hosts, self._used = self._used, set()
        for host in hosts:
            await self._call(
                "Storage.clearDataForOrigin", origin=f"http://{host}", storageTypes="all"
            )

    async def _rest(self) -> None:
        await self._evaluate(UNFOCUSED, 10.0)
        await restore_keymap(self._need(self._xvnc).display, self._need(self._keymap))
        await self._hears()

    async def _hears(self) -> None:
        """Park the pointer, switch locks off, and know that a key reaches the page, which fills
        the screen; `Deaf` where it does not."""
        heard = await roundtrip.unlocked(self._evaluate, self._need(self._xvnc))
        booted = self._need(self._booted)
        if (heard.size, heard.scale) != (booted.size, booted.scale):
            raise roundtrip.Deaf(
                f"the page has {heard.size} CSS pixels at scale {heard.scale:g}; it had "
                f"{booted.size} at {booted.scale:g}: something else is on the screen"
            )

    async def _dismiss(self) -> None:
        """Close the page's dialog; there rarely is one."""
        with contextlib.suppress(CDPError, BrowserGone):
            await self._call("Page.handleJavaScriptDialog", accept=True)

    async def _let_go(self) -> None:
        """Close a dialog that opened while the page was being left, or say that it stays."""
        try:
            await self._call("Page.handleJavaScriptDialog", accept=True)
        except (CDPError, BrowserGone):
            self._kept.set()

    @property
    def _crashed(self) -> bool:
        return any("crashed" in fault for fault in self.faults)

    def _own_host(self, url: str) -> str:
        parts = urlsplit(url)
        if parts.hostname not in ("127.0.0.1", "localhost"):
            return url
        host = f"e{next(self._hosts)}.localhost"
        netloc = f"{host}:{parts.port}" if parts.port else host
        self._used |= {netloc, parts.netloc}
        return urlunsplit(parts._replace(netloc=netloc))

    async def _evaluate(self, expression: str, timeout_s: float) -> Any:
        answer = await self._call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            timeout_s=timeout_s,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{_short(expression)}: {_exception(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    async def _looked(self, at: Point | None, to: Point | None) -> ScreenContext:
        if not self.alive:
            return unknown("the browser has ended")
        if self._dialog is not None:
            return unknown(f"a dialog is open: {_short(self._dialog)}")
        return await self._look.look(self._target, at, to)

    def _heard(self, event: Event) -> None:
        if event.get("sessionId") != self._session:
            return
        method, params = event["method"], event["params"]
        if method == "Runtime.executionContextCreated":
            self._look.heard(params["context"])
        elif method == "Page.javascriptDialogOpening":
            self._dialog = str(params.get("message", ""))
        elif method == "Page.javascriptDialogClosed":
            self._dialog = None
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Page.javascriptDialogOpening" and self._leaving:
            self._dismissing = asyncio.create_task(self._let_go())
        elif (fault := _fault(method, params)) and len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)

    async def _close(self) -> None:
        guard, self._guard = self._guard, None
        if self._xvnc is not None:
            unregister(self._xvnc.url)
        if self._cdp is not None:
            await self._cdp.close()
        if guard is not None:
            await guard.close()
        if self._xvnc is not None:
            self._xvnc.held.close()
        await self._proxy.close()

    @staticmethod
    def _need(part: Part | None) -> Part:
        if part is None:
            raise LabError("this desktop is not running: use it inside `async with`, or start it")
        return part


def _port_of(url: str) -> int | None:
    """The loopback port that a page is served on; `None` for one that needs no server."""
    host, port = address_of(url)
    if port is not None and not is_loopback_name(host):
        raise BrowserError(
            f"{url} cannot be shown: a desktop reaches servers on this machine alone "
            "(127.0.0.1, localhost or a name that ends in .localhost)"
        )
    return port


def program() -> str:
    """Where Chromium is, or which package has it."""
    path = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if path is None:
        raise LabError(
            f"no browser (looked for {', '.join(PROGRAMS)} on the PATH): on Debian "
            "`apt-get install chromium`; `cua-lab doctor` lists what is missing"
        )
    return path


def _sandbox() -> tuple[str, ...]:
    """Chromium's sandbox does not run as root."""
    import os

    return ("--no-sandbox",) if os.geteuid() == 0 else ()


def _fault(method: str, params: dict[str, Any]) -> str | None:
    """What an event complains about, if it does."""
    if method == "Inspector.targetCrashed":
        return "the page crashed"
    if method == "Runtime.exceptionThrown":
        return f"uncaught {_exception(params['exceptionDetails'])}"
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
        texts = [str(a.get("value", a.get("description", ""))) for a in params["args"]]
        return f"console error: {' '.join(texts)}"
    if method == "Log.entryAdded" and params["entry"]["level"] == "error":
        entry = params["entry"]
        return f"{entry['source']} error: {entry['text']} {entry.get('url', '')}".strip()
    return None


def _exception(details: dict[str, Any]) -> str:
    thrown = details.get("exception", {})
    what = thrown.get("description") or thrown.get("value") or details.get("text", "")
    return _short(str(what).split("\n    at ")[0], 300)


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
