"""A round trip: a key goes in at the X server and the page says that it has come.

    listen (page) ── tap (X server, over RFB) ──▶ browser ──▶ page ── heard ──▶ Heard

Screenshots of a deaf desktop look perfect: a dialog of the toolkit's own, a menu, a second window
hold the keyboard, and every later episode fails its task. So a key is sent before a desktop is
lent. The key is Pause, with which no page and no browser does anything; while a round trip lasts
the page sees no key at all. Invariant: `heard` returns only what a key event in the page said.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from cua_lab.desktop.cdp import BrowserError
from cua_lab.desktop.xvnc import Xvnc

Evaluate = Callable[[str, float], Awaitable[Any]]
"""An expression and its time limit in seconds -> its value in the page."""
HEAR_S = 10.0
"""Far more than a key takes on a machine shared with other work; a deaf desktop costs this once."""
TRIES = 5
PAUSE = 0xFF13
LOCKS = {"CapsLock": 0xFFE5, "NumLock": 0xFF7F, "ScrollLock": 0xFF14}

LISTEN = """
(() => {
  const kinds = ["keydown", "keypress", "keyup"], locks = %s;
  window[Symbol.for("cua-lab")] = new Promise(done => {
    const hear = event => {
      event.preventDefault();
      event.stopImmediatePropagation();
      if (event.type !== "keyup" || event.code !== "Pause") return;
      for (const kind of kinds) removeEventListener(kind, hear, true);
      done({
        locks: locks.filter(lock => event.getModifierState(lock)),
        size: [innerWidth, innerHeight],
        scale: devicePixelRatio,
      });
    };
    for (const kind of kinds) addEventListener(kind, hear, true);
  });
})()
""" % json.dumps(list(LOCKS))  # noqa: UP031
HEARD = 'window[Symbol.for("cua-lab")]'


class Deaf(BrowserError):
    """The page did not get a key that the X server was sent."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the page knew when Pause came up."""

    locks: tuple[str, ...]
    """Which of `LOCKS` are on."""
    size: tuple[int, int]
    """Of the page, in CSS pixels."""
    scale: float
    """Screen pixels per CSS pixel: the window's times the page's zoom."""


async def hear(evaluate: Evaluate, xvnc: Xvnc, *taps: int) -> Heard:
    """Tap these keys, then Pause, and wait until the page has them all."""
    try:
        await evaluate(LISTEN, HEAR_S)
        await xvnc.park(*taps, PAUSE)
        found = await _heard(evaluate, xvnc)
    except BrowserError as error:
        raise Deaf(f"a key sent to the X server did not reach the page: {error}") from error
    return Heard(tuple(found["locks"]), tuple(found["size"]), float(found["scale"]))


async def _heard(evaluate: Evaluate, xvnc: Xvnc) -> Any:
    """What the page heard. A window that has just opened, or has another page, may lose a key (3 of
    16 rounds of tests on a busy machine), so Pause is tapped again while none comes."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(BrowserError):
            return await evaluate(HEARD, HEAR_S / TRIES)
        await xvnc.park(PAUSE)
    return await evaluate(HEARD, HEAR_S / TRIES)


async def unlocked(evaluate: Evaluate, xvnc: Xvnc) -> Heard:
    """A round trip after which no lock is on: Caps, Num and Scroll Lock outlive their episode."""
    for _ in range(3):
        heard = await hear(evaluate, xvnc)
        if not heard.locks:
            return heard
        heard = await hear(evaluate, xvnc, *(LOCKS[lock] for lock in heard.locks))
    raise Deaf(f"{' and '.join(heard.locks)} cannot be switched off")
