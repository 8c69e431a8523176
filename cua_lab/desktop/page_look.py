"""What a browser's page says about a point of the screen: one round trip over its pipe.

    (at, to) ──look() in a world beside the page's──▶ JSON ──▶ ScreenContext

Invariant: the page's own scripts cannot answer for it, and whatever is not a plain answer (another
tab in front, a dialog, a page that hangs or has just changed) is an unknown context.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from cua_lab.desktop.cdp import BrowserError, CDPError
from cua_lab.desktop.screen_context import Element, Form, Point, ScreenContext, unknown

WORLD = "cua-lab-look"
LOOK_S = 1.0
"""A page that is too busy to say what is on it within this is not known."""
Call = Callable[..., Awaitable[dict[str, Any]]]


class PageLook:
    """Looks at one page after the other; installs itself again after each navigation."""

    def __init__(self, call: Call) -> None:
        """`call` is a method of the page's session: its name, then the parameters."""
        self._call = call
        self._frame = ""
        self._world = ""
        """Its unique id: plain ids are counted in each renderer, and after a navigation the same
        number may be the page's own world."""
        self._made: dict[int, str] = {}

    def heard(self, context: dict[str, Any]) -> None:
        """The browser made a world: `context` of Runtime.executionContextCreated."""
        if context.get("name") == WORLD:
            self._made = {int(context["id"]): str(context["uniqueId"])}

    async def look(self, frame: str, at: Point | None, to: Point | None) -> ScreenContext:
        """The context of the page whose main frame this is; never raises."""
        expression = f"look({json.dumps(at)}, {json.dumps(to)})"
        try:
            if not self._world or frame != self._frame:
                await self._install(frame)
            try:
                answer = await self._evaluate(expression)
            except CDPError:  # the page has changed, and its worlds with it
                await self._install(frame)
                answer = await self._evaluate(expression)
            return _context(answer)
        except (BrowserError, KeyError, TypeError, ValueError) as error:
            self._world = ""
            return unknown(f"the page did not say what is on it: {str(error)[:120]}")

    async def _install(self, frame: str) -> None:
        made = await self._call(
            "Page.createIsolatedWorld", frameId=frame, worldName=WORLD, timeout_s=LOOK_S
        )
        self._frame, self._world = frame, self._made[int(made["executionContextId"])]
        await self._evaluate(f"{_script()}; 1")

    async def _evaluate(self, expression: str) -> Any:
        answer = await self._call(
            "Runtime.evaluate",
            expression=expression,
            uniqueContextId=self._world,
            returnByValue=True,
            timeout_s=LOOK_S,
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", {}))[:200])
        return answer["result"].get("value")


@cache
def _script() -> str:
    return (Path(__file__).parent / "page_look.js").read_text(encoding="utf-8")


def _context(answer: Any) -> ScreenContext:
    if not answer["active"]:
        return unknown("another window, tab or dialog of the browser has the keyboard")
    return ScreenContext(
        url=str(answer["url"]),
        title=str(answer["title"]),
        pointed=_element(answer["pointed"]),
        focused=_element(answer["focused"]),
        dropped=_element(answer["dropped"]),
    )


def _element(found: Any) -> Element | None:
    if found is None:
        return None
    form = found.get("form")
    return Element(
        role=str(found["role"]),
        name=str(found["name"]),
        kind=str(found.get("kind", "")),
        href=str(found.get("href", "")),
        form=None if form is None else Form(**form),
        download=bool(found.get("download", False)),
    )
