"""Settling: when, after an action, the screen is worth a look.

The embedded desktop answers a screenshot from a screen drawn after everything before it, so there
is nothing to wait for. A real desktop needs a strategy; it is handed the screen and returns the
frame that the policy is shown. Its one duty: come back within a time limit of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np


class Screen(Protocol):
    """What a settling strategy may ask of a screen."""

    async def frame(self) -> np.ndarray:
        """The whole screen now: (height, width, 3) uint8, RGB. Raises `DeadScreen`."""
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
