"""What a desktop shows: the app protocol.

An app is a pure function of its constructor arguments, the seed of the last `reset` and the events
since; it owns its random generator and reads no clock. Its one invariant: an image that `draw`
returned never changes afterwards, so the same object again means the same pixels.
"""

from __future__ import annotations

from typing import Any, Protocol

from PIL import Image

LEFT, MIDDLE, RIGHT, WHEEL_UP, WHEEL_DOWN = 1, 2, 4, 8, 16
"""RFB's pointer mask: one bit a button."""


class App(Protocol):
    """A program with a screen of fixed size, driven by keys and a pointer."""

    size: tuple[int, int]
    """Width and height of the screen in pixels."""

    def reset(self, seed: int) -> None:
        """Start over; the same seed gives the same app, to the last pixel."""

    def draw(self) -> Image.Image:
        """The screen now, as an RGB image of `size`; the same object while nothing changed."""

    def key(self, keysym: int, down: bool) -> None:
        """An X11 keysym goes down or up."""

    def pointer(self, x: int, y: int, buttons: int) -> None:
        """The pointer is at a pixel of the screen with these buttons held (RFB's mask)."""

    def state(self) -> dict[str, Any]:
        """What graders read: JSON types only, a fresh copy."""
