"""The score of an exercise that builds: a settle strategy in stale frames and milliseconds.

A strategy and a drawn page -> the frame it returns and the time it took. Time is the page's own and
passes only while the strategy waits, so that a score is the same on every machine.

Invariant: a page is a function of its seed, and a strategy sees of it only what a screen shows.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cua_lab.errors import LabError

LOOK_S = 0.004
"""What a look costs: a small screen over a socket."""
LEAST_S = 0.0005
"""Waiting for no time takes this long, so that no strategy waits forever."""
LIMIT_S = 5.0
"""No page needs longer; who waits on gets an error and no score."""
KINDS = ("jumps", "glides", "two steps", "nothing", "never rests")


@dataclass
class DrawnScreen:
    """A screen after an action: the calls of `computer.settling.Screen`, and a clock, `now` (s).

    A frame holds the number of changes so far, in each pixel: (2, 2, 3) uint8.
    """

    changes: Sequence[float]
    """When it changes, in seconds after the action, in order."""
    now: float = 0.0
    seen: int = field(default=0, repr=False)

    async def frame(self) -> np.ndarray:
        """The screen now; takes 4 ms. Raises `LabError` 5 s after the action."""
        self._pass(self.now + LOOK_S)
        return self.latest()

    async def change(self, wait_s: float) -> bool:
        """Wait for the next change, at most so long; whether there was one."""
        until = self.now + max(wait_s, LEAST_S)
        coming = next((at for at in self.changes[self.seen :] if at <= until), None)
        self._pass(until if coming is None else coming)
        return coming is not None

    async def pause(self, wait_s: float) -> None:
        """Wait, whatever happens meanwhile."""
        self._pass(self.now + max(wait_s, LEAST_S))

    def latest(self) -> np.ndarray:
        """The screen as of the last call."""
        return np.full((2, 2, 3), self.seen, np.uint8)

    def _pass(self, until: float) -> None:
        if until > LIMIT_S:
            raise LabError(
                f"no frame within {LIMIT_S:.0f} s of the action; a strategy must return one, "
                "also where a page never rests: give up sooner"
            )
        self.now = until
        self.seen = sum(at <= until for at in self.changes)


Strategy = Callable[[DrawnScreen], Awaitable[np.ndarray]]


@dataclass(frozen=True, slots=True)
class SettleScore:
    """What a strategy's waiting cost and what it bought."""

    actions: int
    stale: dict[str, int]
    """Frames that did not show the page at rest, by kind of page."""
    ms: float
    """The page's time from an action to its frame, mean."""

    @property
    def all_stale(self) -> int:
        return sum(self.stale.values())


async def settle_score(strategy: Strategy, each: int = 40) -> SettleScore:
    """Score on `each` pages of every kind. Raises `LabError` where no frame comes in 5 s."""
    stale, total = dict.fromkeys(KINDS, 0), 0.0
    for kind in KINDS:
        for number in range(each):
            screen = DrawnScreen(page_of(kind, number))
            frame = np.asarray(await strategy(screen))
            least = (
                1 if kind == "never rests" else len(screen.changes)
            )  # any tick of a clock will do
            stale[kind] += frame.shape != (2, 2, 3) or int(frame[0, 0, 0]) < least
            total += screen.now
    actions = each * len(KINDS)
    return SettleScore(actions, stale, 1000 * total / actions)


def page_of(kind: str, seed: int) -> tuple[float, ...]:
    """When a page of this kind changes after an action, in seconds."""
    draw = random.Random(f"{kind} {seed}")
    first = draw.uniform(0.015, 0.050)  # how long a browser takes to begin to react
    if kind == "jumps":
        return (first,)
    if kind == "glides":
        return tuple(first + k / 60 for k in range(draw.randint(12, 28)))
    if kind == "two steps":
        return (first, first + draw.uniform(0.050, 0.110))
    if kind == "never rests":
        return tuple(first + 0.1 * k for k in range(round(LIMIT_S / 0.1)))
    return ()
