"""Boxes of pixels on a screen.

A `Box` covers the pixels `left <= x < right`, `top <= y < bottom` (screen pixels, origin top left);
it is never empty when an app hands it out.
"""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle of pixels; right and bottom are exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def at(cls, left: int, top: int, width: int, height: int) -> Box:
        """The box of a size at a corner."""
        return cls(left, top, left + width, top + height)

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def center(self) -> tuple[int, int]:
        """The pixel in the middle (always inside)."""
        return (self.left + self.right - 1) // 2, (self.top + self.bottom - 1) // 2

    def contains(self, x: int, y: int) -> bool:
        return self.left <= x < self.right and self.top <= y < self.bottom

    def grow(self, by: int) -> Box:
        """The box with `by` more pixels on every side (fewer, when negative)."""
        return Box(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def overlap(self, other: Box) -> Box | None:
        """The pixels in both, or None."""
        both = Box(
            max(self.left, other.left),
            max(self.top, other.top),
            min(self.right, other.right),
            min(self.bottom, other.bottom),
        )
        return both if both.width > 0 and both.height > 0 else None
