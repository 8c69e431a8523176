"""Coordinates: what the policy says -> which pixel of the desktop, and back.

The policy looks at a view (the screenshot, never larger than the desktop) and speaks one of three
spaces: `pixels` of that view, `0-1000` (Qwen2-VL, Qwen3-VL; whole numbers) or `0-1`. All three map
pixel centres linearly with the corners on the corners: the first value is the first pixel, the last
value the last pixel. In `pixels` the answer lies inside the block of desktop pixels that the view
pixel stands for, and is the same pixel where view and desktop are of one size.

Invariant: `to_screen` gives a pixel of the desktop or raises `CoordinateError`; it never clamps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Space = Literal["pixels", "0-1000", "0-1"]
SPACES: tuple[str, ...] = get_args(Space)
THOUSAND = 1000


class CoordinateError(ValueError):
    """A coordinate of the wrong type or outside of the screen: got, and what is allowed."""


@dataclass(frozen=True, slots=True)
class View:
    """The desktop as the policy sees it."""

    screen: tuple[int, int]
    """Width and height of the desktop, in its own pixels."""
    width: int | None = None
    """Width of the screenshots; None or more than the desktop has means the desktop's own."""
    space: Space = "pixels"

    def __post_init__(self) -> None:
        if min(self.screen) < 1:
            raise ValueError(f"a desktop has at least one pixel; got {self.screen}")
        if self.width is not None and self.width < 1:
            raise ValueError(f"the screenshot width must be at least 1; got {self.width}")
        if self.space not in SPACES:
            raise ValueError(f"coordinate space {self.space!r} is none of {', '.join(SPACES)}")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screenshots; the aspect is kept, nothing is enlarged."""
        width, height = self.screen
        if self.width is None or self.width >= width:
            return width, height
        return self.width, max(1, _div_round(height * self.width, width))

    def limits(self) -> tuple[int | float, int | float]:
        """The largest x and y; the smallest are 0."""
        if self.space == "pixels":
            return self.size[0] - 1, self.size[1] - 1
        return (THOUSAND, THOUSAND) if self.space == "0-1000" else (1.0, 1.0)

    def to_screen(
        self, x: object, y: object, *, names: tuple[str, str] = ("x", "y")
    ) -> tuple[int, int]:
        """The desktop pixel that the policy's (x, y) points at."""
        limits = self.limits()
        checked = [self._check(v, n, m) for v, n, m in zip((x, y), names, limits, strict=True)]
        return (
            _scale(checked[0], limits[0], self.screen[0] - 1),
            _scale(checked[1], limits[1], self.screen[1] - 1),
        )

    def from_screen(self, px: int, py: int) -> tuple[int | float, int | float]:
        """What a policy says to point at a desktop pixel: the inverse, for scripted players."""
        for value, size in zip((px, py), self.screen, strict=True):
            if not 0 <= value < size:
                raise CoordinateError(f"the pixel ({px}, {py}) is not on a screen of {self.screen}")
        last_x, last_y = self.screen[0] - 1, self.screen[1] - 1
        if self.space == "0-1":
            return (px / last_x if last_x else 0.0), (py / last_y if last_y else 0.0)
        limit_x, limit_y = self.limits()
        return _scale(px, last_x, int(limit_x)), _scale(py, last_y, int(limit_y))

    def _check(self, value: object, name: str, limit: int | float) -> int | float:
        number = _finite(value)
        whole = self.space != "0-1"
        # JSON knows one kind of number: 435.0 is a whole number, 435.5 is not.
        if number is None or (whole and number != int(number)):
            kind = "a whole number" if whole else "a number"
            raise CoordinateError(f"{name} must be {kind} from 0 to {limit}; got {value!r}")
        if not 0 <= number <= limit:
            raise CoordinateError(f"{name} is outside of the screen: 0 to {limit}; got {value!r}")
        return int(number) if whole else number


def _finite(value: object) -> int | float | None:
    """The value where it is a finite JSON number; True and False are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _scale(value: int | float, limit: int | float, last: int) -> int:
    """`value` of 0..limit on 0..last, to the nearest pixel; exact for whole numbers."""
    if limit == 0:
        return 0
    if isinstance(value, int) and isinstance(limit, int):
        return _div_round(value * last, limit)
    return math.floor(value / limit * last + 0.5)


def _div_round(a: int, b: int) -> int:
    """a / b to the nearest whole number, halves up, without floating point (a >= 0, b > 0)."""
    return (2 * a + b) // (2 * b)
