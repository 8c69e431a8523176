"""What the lab's apps share: drawing once per change, and refusing screens that are too small.

Invariant: a method that changes something visible calls `_touch`; `draw` then paints a new image,
and otherwise returns the last one.
"""

from __future__ import annotations

from PIL import Image

from cua_lab.errors import LabError

SMALLEST = 96
"""Pixels: below it nothing is legible."""


class Painted:
    """An app that paints a new image after `_touch` and never before."""

    def __init__(self, width: int, height: int) -> None:
        if min(width, height) < SMALLEST or max(width, height) > 4096:
            raise LabError(
                f"a screen of {width}x{height} pixels; expected {SMALLEST} to 4096 each way"
            )
        self.size = (width, height)
        self._image: Image.Image | None = None

    def draw(self) -> Image.Image:
        """The screen now; the same object while nothing changed."""
        if self._image is None:
            self._image = self._paint()
        return self._image

    def _touch(self) -> None:
        self._image = None

    def _paint(self) -> Image.Image:
        raise NotImplementedError
