"""A live screen beside a cell: whatever is clicked, typed or slid becomes a `computer` call.

    button, slider, click on the picture ──JSON──▶ Bench.call ──▶ screenshot, words

The widget shows the call it sent, as a model would have written it, and what came back. Invariant:
its controls speak the tool's own coordinate space and send nothing that the tool did not check.
Without a kernel its static copy is the last screenshot.
"""

import asyncio
import base64
import json
from concurrent.futures import Future
from typing import Any

import anywidget
import traitlets

from cua_lab.computer.bench import Bench, Shown
from cua_lab.viz.page import STATIC


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

    def __init__(self, bench: Bench, *, watch: tuple[str, ...] = ()) -> None:
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
        self._asked_for: set[Future[Shown]] = set()
        self.on_msg(self._asked)

    async def call(self, arguments: dict[str, Any]) -> Shown:
        """Send one call, show the outcome, and return it."""
        async with self._turn:
            shown = await self._bench.call(arguments)
        self.sent = json.dumps(arguments, ensure_ascii=False)
        self.error, self.said = shown.error, shown.text
        if shown.png is not None:
            self._png = shown.png
            self.frame = "data:image/png;base64," + base64.b64encode(shown.png).decode("ascii")
        state = self._bench.app.state()
        self.state = ", ".join(f"{name}: {json.dumps(state[name])}" for name in self._watch)
        return shown

    def _asked(self, _widget: Any, message: Any, _buffers: Any) -> None:
        # JupyterLab may hand messages to a thread of its own (a subshell), but the bench's streams
        # belong to the loop that opened them: from another one every second call hung.
        future = asyncio.run_coroutine_threadsafe(self.call(message["call"]), self._loop)
        self._asked_for.add(future)
        future.add_done_callback(self._asked_for.discard)

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
            static["image/png"] = base64.b64encode(self._png).decode("ascii")
            shown = self.size[0] * max(1, round(340 / self.size[0]))  # as live.js has it
            metadata = {**metadata, "image/png": {"width": shown}}
        return {**data, **static}, metadata


async def live_screen(bench: Bench, *, watch: tuple[str, ...] = ()) -> LiveScreen:
    """The widget with a first look at the screen."""
    live = LiveScreen(bench, watch=watch)
    await live.call({"action": "screenshot"})
    return live
