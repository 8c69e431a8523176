"""Coordinate spaces: `0-1` (fractions), `0-1000` (Qwen2-VL, Qwen3-VL), `pixels` (of the image).

Conversions go through the unit square and follow the computer tool: the first pixel is 0, the last
one is 1. Public datasets divide by the size instead of by the size less one; the two differ by less
than a pixel, and only here do they meet.

Invariant: no function here guesses a space, and those that need the screenshot's size say so
instead of assuming one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from cua_lab.errors import LabError

Space = Literal["0-1", "0-1000", "pixels"]
SPACES: tuple[Space, ...] = get_args(Space)
Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Corners x0, y0, x1, y1 with x0 < x1 and y0 < y1."""
Size = tuple[int, int]
"""Width, height in pixels."""


def as_space(name: object) -> Space:
    """The space of that name, or one clear error."""
    for space in SPACES:
        if name == space:
            return space
    raise LabError(f"coordinate space is {name!r}; expected one of {', '.join(SPACES)}")


def extent(space: Space, size: Size | None) -> Point:
    """The right and bottom edge of a space; `pixels` needs the screenshot's size."""
    if space == "0-1":
        return 1.0, 1.0
    if space == "0-1000":
        return 1000.0, 1000.0
    if size is None:
        raise LabError(
            "coordinates in pixels need the screenshot's width and height;"
            " give the row an image_size or read the image first"
        )
    return float(size[0]), float(size[1])


def scale(space: Space, size: Size | None) -> Point:
    """What x and y are at the far corner of the unit square."""
    width, height = extent(space, size)
    return (max(1.0, width - 1), max(1.0, height - 1)) if space == "pixels" else (width, height)


def point_to_unit(point: Point, space: Space, size: Size | None = None) -> Point:
    """A point as fractions of the screenshot's width and height."""
    width, height = scale(space, size)
    return point[0] / width, point[1] / height


def box_to_unit(box: Box, space: Space, size: Size | None = None) -> Box:
    """A box as fractions of the screenshot's width and height."""
    width, height = scale(space, size)
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def point_from_unit(point: Point, space: Space, size: Size | None = None) -> Point:
    """Fractions to a space; `0-1000` gives whole numbers, as the models write them."""
    width, height = scale(space, size)
    x, y = point[0] * width, point[1] * height
    return (float(round(x)), float(round(y))) if space == "0-1000" else (x, y)


def inside(point: Point, space: Space, size: Size | None) -> bool:
    """Is the point on the screen? The pixel after the last one is not."""
    width, height = extent(space, size)
    if space == "pixels":
        return 0 <= point[0] < width and 0 <= point[1] < height
    return 0 <= point[0] <= width and 0 <= point[1] <= height


def contains(box: Box, point: Point) -> bool:
    """Is the point inside the box, edges included? Both in one space."""
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


@dataclass
class SpaceEvidence:
    """What the numbers of a whole file say about its space, gathered row by row.

    One row proves little: (0.4, 0.6) is a legal pixel. Fifty rows without a number above 1 are
    not pixels. The verdict is reported; it never changes how a row is read.
    """

    declared: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    fractions: int = 0
    """Rows whose coordinates all lie in [0, 1]."""
    thousands: int = 0
    """Rows whose coordinates all lie in [0, 1000] and not all in [0, 1]."""
    beyond: int = 0
    """Rows with a coordinate above 1000."""
    off_screen: int = 0
    """Rows whose point is outside the screenshot when read as pixels (size known)."""
    wide: int = 0
    """Rows whose screenshot is at least 1300 wide, where pixels would soon exceed 1000."""

    def add(self, declared: str, point: Point, size: Size | None) -> None:
        """Take one row's point into account."""
        top = max(point)
        self.declared[declared] += 1
        self.rows += 1
        self.fractions += top <= 1
        self.thousands += 1 < top <= 1000
        self.beyond += top > 1000
        if size is not None:
            self.off_screen += point[0] > size[0] or point[1] > size[1]
            self.wide += size[0] >= 1300

    def looks_like(self) -> Space | None:
        """The space that the file's numbers fit best; `None` where they leave it open."""
        if self.rows == 0:
            return None
        if self.fractions >= 0.95 * self.rows:
            return "0-1"
        if self.beyond >= 0.02 * self.rows and self.beyond:
            return "pixels"
        if self.off_screen >= 0.1 * self.rows and self.off_screen:
            return "0-1000"
        if self.rows >= 50 and self.wide == self.rows:
            return "0-1000"  # wide screens, many points, none beyond 1000
        return None

    def mismatch(self) -> str | None:
        """One sentence when the declared space and the numbers disagree, else `None`."""
        looks = self.looks_like()
        if looks is None or not self.declared:
            return None
        declared, _ = self.declared.most_common(1)[0]
        if declared == looks:
            return None
        return (
            f"the file is read as {declared}, but its numbers look like {looks}: of {self.rows}"
            f" points {self.fractions} lie within 0-1, {self.thousands} within 0-1000,"
            f" {self.beyond} beyond 1000, {self.off_screen} off the screenshot as pixels;"
            f" if it is {looks}, say so with --space {looks}"
        )
