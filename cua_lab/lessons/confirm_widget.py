"""A confirmer beside a cell: the screen, the action drawn on it, and a person who decides.

    Question ──▶ picture, words, countdown ──button or key──▶ Answer, to this question alone

Invariant: a message from the browser is an answer only to the question that it names, and only
while that is asked; anything else in it is a rejection. Without a browser the gate's time limit
decides, which is a no.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from cua_lab.pictures import data_url
from cua_lab.safety.confirmers import Answer, Question

STATIC = Path(__file__).parent / "static"
WORDS = {
    "approve": "approved",
    "approve_alike": "approved, and all alike in this episode",
    "reject": "rejected",
    "edit": "replaced by another call",
}


class ConfirmWidget(anywidget.AnyWidget):
    """Show it in a cell and give it to a `Gate` as its confirmer. The episode must not hold the
    cell: run it as a task, so that the kernel hears the browser."""

    _esm = STATIC / "confirm.js"
    _css = STATIC / "confirm.css"
    question = traitlets.Dict({}).tag(sync=True)
    """What is asked now; empty while nothing is."""
    log: traitlets.List[str] = traitlets.List([]).tag(sync=True)
    """What was decided so far, the last one first."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._number = 0
        self.on_msg(self._heard)

    async def confirm(self, question: Question) -> Answer:
        """Ask in the browser and wait; whoever asks has the time limit."""
        self._loop = asyncio.get_running_loop()
        self._number, self._waiting = question.number, self._loop.create_future()
        self.question = _shown(question)
        answer = Answer("reject", "nobody answered in time")
        try:
            answer = await self._waiting
            return answer
        finally:
            self._waiting, self.question = None, {}
            why = f" ({answer.why})" if answer.why else ""
            self.log = [f"{question.words}: {WORDS[answer.verdict]}{why}", *self.log][:20]

    async def press(self, verdict: str, **more: str) -> None:
        """Press a button as a person would, once something is asked: for a lesson that runs with
        nobody there. `call` is an edited call, as JSON. Whoever presses has the time limit."""
        while not self.question:
            await asyncio.sleep(0.01)
        self._take({"number": self._number, "verdict": verdict, **more})

    def _heard(self, _widget: Any, message: Any, _buffers: Any) -> None:
        # JupyterLab may hand messages to a thread of its own; the future is the gate's loop's.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: Any) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        if isinstance(message, dict) and message.get("number") == self._number:
            waiting.set_result(_answer_of(message))

    def __repr__(self) -> str:
        return f"ConfirmWidget({self.log[0] if self.log else 'nothing was asked yet'})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if bundle is not None else ({}, {})
        return {**data, "text/plain": repr(self)}, metadata


def _shown(question: Question) -> dict[str, Any]:
    """The question as the browser draws it."""
    return {
        "number": question.number,
        "episode": question.episode,
        "words": question.words,
        "call": json.dumps(dict(question.arguments), ensure_ascii=False),
        "thought": question.thought,
        "reason": question.decision.reason,
        "risk": question.decision.risk,
        "screenshot": data_url(question.screenshot),
        "at": [list(point) for point in question.at],
        "limit_s": question.limit_s,
        "asked": question.asked,
    }


def _answer_of(message: dict[str, Any]) -> Answer:
    """What a person said; words that are none of the four are a no."""
    verdict, call = message.get("verdict"), message.get("call")
    if verdict == "edit":
        try:
            edited = json.loads(str(call))
        except ValueError:
            return Answer("reject", "the edited call is not JSON")
        if not isinstance(edited, dict):
            return Answer("reject", "the edited call is no object")
        return Answer("edit", "edited by hand", edited)
    if verdict in ("approve", "approve_alike"):
        return Answer(verdict, "approved by hand")
    return Answer("reject", "rejected by hand")
