"""Settling: when, after an action, the screen is worth a look.

The embedded desktop answers a screenshot from a screen drawn after everything before it, so there
is nothing to wait for. A real desktop needs a strategy; it is handed the screen and returns the
frame that the policy is shown. Its one duty: come back within a time limit of its own.

A fixed sleep is wrong twice: a page that is done after 20 ms waits 300, and one that moves for 400
is shown half way.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cua_lab.errors import LabError
from cua_lab.waiting import crowd

if TYPE_CHECKING:
    import numpy as np


class Screen(Protocol):
    """What a settling strategy may ask of a screen."""

    async def frame(self) -> np.ndarray:
        """The whole screen now: (height, width, 3) uint8, RGB. Raises `DeadScreen`."""
        ...

    async def change(self, wait_s: float) -> bool:
        """Whether the screen changed within this time. Raises `DeadScreen`."""
        ...

    def latest(self) -> np.ndarray:
        """The screen as of the last `change`: (height, width, 3) uint8, RGB."""
        ...


@runtime_checkable
class Settle(Protocol):
    """Waits until the screen is at rest, or long enough, and returns the frame to show."""

    async def __call__(self, screen: Screen) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class NoSettle:
    """The screen is always up to date: take it as it is."""

    async def __call__(self, screen: Screen) -> np.ndarray:
        return await screen.frame()


@dataclass(frozen=True, slots=True)
class QuietFramebuffer:
    """Waits until nothing has changed for a while.

    The server says what changes, as it changes; nothing is polled and unchanged pixels are not sent
    again. A page that never rests is shown after `at_most_ms`. Where more wants to run than there
    are cores, a browser on them needs as many times as long to react, and is given it.
    """

    quiet_ms: int = 40
    """Without a change for this long: at rest. Two frames of a page at 60 Hz, and some."""
    react_ms: int = 60
    """At least this long after the action: a browser needs 15-50 ms to begin to react."""
    at_most_ms: int = 1000
    """An endless animation is not waited for."""

    def __post_init__(self) -> None:
        if not 0 < self.quiet_ms <= self.at_most_ms or not 0 <= self.react_ms <= self.at_most_ms:
            raise LabError(
                f"quiet_ms and react_ms must be positive and at most at_most_ms; got "
                f"quiet_ms {self.quiet_ms}, react_ms {self.react_ms}, at_most_ms {self.at_most_ms}"
            )

    async def __call__(self, screen: Screen) -> np.ndarray:
        now = asyncio.get_running_loop().time
        start, most = now(), 1.0
        end = start + self.at_most_ms / 1000
        while True:
            most = max(most, crowd())
            wait = max(self.quiet_ms * most / 1000, start + self.react_ms * most / 1000 - now())
            if now() >= end or not await screen.change(min(wait, end - now())):
                return screen.latest()


@dataclass(frozen=True, slots=True)
class FixedSleep:
    """What published tools do, 300 ms as a rule: for comparison."""

    ms: int = 300

    async def __call__(self, screen: Screen) -> np.ndarray:
        await asyncio.sleep(self.ms / 1000)
        return await screen.frame()
