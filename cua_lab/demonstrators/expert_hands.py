"""What an expert works with: the task in words, where things are, and calls of the computer tool.

An expert is an asynchronous generator of the `computer` tool's arguments. It may ask the page where
a thing is; it acts through the tool alone, that is through keys and pointer events over VNC.
Invariant: coordinates are what a policy would have to say, in the space that the tool speaks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from cua_lab.computer.coordinates import View
from cua_lab.desktop.chromium import ChromiumDesktop

Arguments = dict[str, Any]
Expert = Callable[["Hands"], AsyncIterator[Arguments]]
# [left, top, width, height] of the nth visible element with this text; of a link that is broken
# over lines its first line. `null` where there is none.
FIND = """
(([css, text, nth]) => {
  const own = e => (e.value || e.textContent).replace(/\\s+/g, " ").trim();
  const found = [...document.querySelectorAll(css)].filter(
    e => e.getClientRects().length && (text === null || own(e) === text || e.textContent.trim() === text));
  const element = found.at(nth);
  if (!element) return null;
  const r = element.getClientRects()[0];
  return [r.left, r.top, r.width, r.height];
})
"""  # noqa: E501


class Lost(LookupError):
    """The page does not look as the expert expects."""


@dataclass(frozen=True, slots=True)
class Hands:
    """One expert's reach into one episode."""

    desktop: ChromiumDesktop
    view: View
    said: str
    """The task in words."""

    async def js(self, expression: str) -> Any:
        return await self.desktop.evaluate(expression)

    @property
    def quoted(self) -> list[str]:
        """What the task has in quotation marks."""
        return re.findall(r'"([^"]*)"', self.said)

    def match(self, pattern: str) -> tuple[str, ...]:
        """The groups of a pattern that the task must contain."""
        found = re.search(pattern, self.said)
        if found is None:
            raise Lost(f"the task {self.said!r} does not match {pattern!r}")
        return found.groups()

    async def box(self, css: str, text: str | None = None, nth: int = 0) -> tuple[float, ...]:
        """Left, top, width and height of an element that can be seen, in CSS pixels."""
        found = await self.js(f"{FIND}({json.dumps([css, text, nth])})")
        if found is None:
            what = "" if text is None else f" with the text {text!r}"
            raise Lost(f"no visible {css!r}{what} (number {nth}) for the task {self.said!r}")
        return tuple(found)

    async def at(
        self,
        css: str,
        text: str | None = None,
        nth: int = 0,
        *,
        across: float = 0.5,
        down: float = 0.5,
    ) -> tuple[float, float]:
        """A point of an element, its middle by default, in CSS pixels."""
        left, top, width, height = await self.box(css, text, nth)
        return left + width * across, top + height * down

    def said_as(self, point: tuple[float, float]) -> tuple[int | float, int | float]:
        """A point of the page as the tool's coordinates."""
        scale = self.desktop.scale
        width, height = self.desktop.size
        x, y = (round(v * scale) for v in point)
        return self.view.from_screen(min(max(x, 0), width - 1), min(max(y, 0), height - 1))

    def click_at(self, point: tuple[float, float], action: str = "click") -> Arguments:
        x, y = self.said_as(point)
        return {"action": action, "x": x, "y": y}

    async def click(self, css: str, text: str | None = None, nth: int = 0) -> Arguments:
        """A click on the middle of an element."""
        return self.click_at(await self.at(css, text, nth))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> Arguments:
        (x, y), (to_x, to_y) = self.said_as(start), self.said_as(end)
        return {"action": "drag", "x": x, "y": y, "to_x": to_x, "to_y": to_y}

    async def until(self, condition: str) -> None:
        """Wait for an animation of the page."""
        for _ in range(200):
            if await self.js(condition):
                return
            await asyncio.sleep(0.01)
        raise Lost(f"never true: {condition}")


def type_(text: str) -> Arguments:
    return {"action": "type", "text": text}


def press(*keys: str) -> Arguments:
    return {"action": "press", "keys": list(keys)}
