"""A live screen beside a cell: whatever is clicked, typed or slid becomes a `computer` call.

    button, slider, click on the picture ──JSON──▶ ScreenSession.call ──▶ screenshot, words
    screen ──changes, over a connection of its own──▶ frame       (where it follows)

The widget shows the call it sent, as a model would have written it, and what came back. One that
follows shows the screen as it changes, by the page itself or by an episode. Invariant:
its controls speak the tool's own coordinate space and send nothing that the tool did not check; it
follows with its own eyes, so it takes no frame from anybody. Without a kernel its static copy is
the last screenshot.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from cua_lab.computer.screen import DeadScreen
from cua_lab.computer.screenshot import scaled_screenshot
from cua_lab.computer.session import ScreenSession, ToolResult
from cua_lab.pictures import base64_text, data_url

STATIC = Path(__file__).parent / "static"
PATIENCE_S = 0.5
"""A look at a screen that rests."""
GONE = "the desktop was closed: run this cell again"
SLOWEST_S = 0.04
"""Between two frames: 25 a second are enough for an eye."""


class LiveScreen(anywidget.AnyWidget):
    """Shows a bench and drives it. `await live.call({...})` does what a button does."""

    _esm = STATIC / "live.js"
    _css = STATIC / "live.css"
    frame = traitlets.Unicode().tag(sync=True)
    """The screen as a `data:` address."""
    size = traitlets.List([1, 1]).tag(sync=True)
    """Pixels of the screenshot."""
    limits = traitlets.List([1, 1]).tag(sync=True)
    """The largest x and y of the tool's coordinate space."""
    whole = traitlets.Bool(True).tag(sync=True)
    """Whether coordinates are whole numbers."""
    actions: traitlets.List[str] = traitlets.List([]).tag(sync=True)
    sent = traitlets.Unicode("").tag(sync=True)
    """The last call, as JSON."""
    said = traitlets.Unicode("").tag(sync=True)
    error = traitlets.Bool(False).tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    """What a grader would read now, in a line."""
    following = traitlets.Bool(False).tag(sync=True)
    """Whether frames come by themselves."""
    frames = traitlets.Int(0).tag(sync=True)
    """So many have."""

    def __init__(self, bench: ScreenSession, *, watch: tuple[str, ...] = ()) -> None:
        """Made on the loop that opened the bench. `watch` names fields of the app's state to show
        below the screen."""
        view = bench.tool.view
        super().__init__(
            size=list(view.size),
            limits=list(view.limits()),
            whole=view.space != "0-1",
            actions=list(bench.tool.config.actions),
        )
        self._bench, self._watch = bench, watch
        self._png: bytes | None = None
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._asked_for: set[Future[ToolResult]] = set()
        self._follower: asyncio.Task[None] | None = None
        self.on_msg(self._asked)

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Send one call, show the outcome, and return it."""
        try:
            async with self._turn:
                shown = await self._bench.call(arguments)
            state = self._bench.app.state() if self._watch else {}
            self.state = ", ".join(f"{name}: {json.dumps(state[name])}" for name in self._watch)
        except Exception as error:
            self._failed(arguments, error)
            raise
        self.sent = json.dumps(arguments, ensure_ascii=False)
        self.error, self.said = shown.error, shown.text
        if shown.png is not None:
            self._show(shown.png)
        return shown

    def follow(self) -> None:
        """Show the screen as it changes, until `unfollow` or until it is gone."""
        if self._follower is None:
            self.following, self._follower = True, asyncio.create_task(self._follow())

    async def unfollow(self) -> None:
        """Look no longer; the last frame stays."""
        task, self._follower = self._follower, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _failed(self, arguments: Any, error: BaseException) -> None:
        """Say why nothing happened: nobody sees the exception of a message from the browser."""
        self.sent = json.dumps(arguments, ensure_ascii=False)
        self.error = True
        if self._bench.closed or isinstance(error, DeadScreen):
            self.said = GONE
        else:
            self.said = f"{type(error).__name__}: {error}"

    async def _follow(self) -> None:
        eyes = await ScreenSession.on(self._bench.url, self._bench.tool.config)
        try:
            while True:
                if await eyes.tool.change(PATIENCE_S):
                    self._show(scaled_screenshot(eyes.tool.latest(), eyes.tool.view.size))
                    self.frames += 1
                    await asyncio.sleep(SLOWEST_S)
        except DeadScreen:
            self.said = "the screen is gone"
        finally:
            self.following = False
            await eyes.close()

    def _show(self, png: bytes) -> None:
        self._png = png
        self.frame = data_url(png)

    def _asked(self, _widget: Any, message: Any, _buffers: Any) -> None:
        # JupyterLab may hand messages to a thread of its own (a subshell), but the bench's streams
        # belong to the loop that opened them: from another one every second call hung.
        asked = self.call(message["call"])
        try:
            future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        except RuntimeError:  # the loop that opened the bench has ended
            asked.close()
            self.sent, self.error, self.said = json.dumps(message["call"]), True, GONE
            return
        self._asked_for.add(future)
        future.add_done_callback(self._answered)

    def _answered(self, future: Future[ToolResult]) -> None:
        """Read the outcome, so that no exception is lost; `call` has shown it already."""
        self._asked_for.discard(future)
        if not future.cancelled():
            future.exception()

    def __repr__(self) -> str:
        words = f"error: {self.said}" if self.error else self.said or "a screenshot"
        state = f"; {self.state}" if self.state else ""
        return (
            f"LiveScreen({self.size[0]}x{self.size[1]}, {self.sent or 'no call'} -> {words}{state})"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if bundle is not None else ({}, {})
        static: dict[str, Any] = {"text/plain": repr(self)}
        if self._png is not None:
            static["image/png"] = base64_text(self._png)
            shown = self.size[0] * max(1, round(340 / self.size[0]))  # as live.js has it
            alt = f"The screen after {self.sent}"
            metadata = {**metadata, "image/png": {"width": shown, "alt": alt}}
        return {**data, **static}, metadata


async def live_screen(
    bench: ScreenSession, *, watch: tuple[str, ...] = (), follow: bool = False
) -> LiveScreen:
    """The widget with a first look at the screen."""
    live = LiveScreen(bench, watch=watch)
    await live.call({"action": "screenshot"})
    if follow:
        live.follow()
    return live
