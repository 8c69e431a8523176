"""Frames, and frames as bytes: pixel formats, Raw and ZLib rectangles, dirty rectangles.

A `Frame` is one drawn screen and never changes; `Shown` is a client's copy of it. Invariant: a
client that applies the rectangles of `Shown.differences(frame, area)` holds `frame` in that area,
pixel by pixel.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from PIL import Image

from cua_lab.desktop.geometry import Box
from cua_lab.desktop.rfb_messages import PixelFormat, rectangle_header

RAW, ZLIB = 0, 6
TILE = 16
"""Dirty rectangles are looked for in tiles of this many pixels."""

_PILLOW = {  # formats that Pillow packs by itself, by (big endian, shifts)
    (False, (0, 8, 16)): "RGBX",
    (False, (16, 8, 0)): "BGRX",
    (True, (16, 8, 0)): "XRGB",
    (True, (0, 8, 16)): "XBGR",
}


@dataclass(frozen=True, eq=False)
class Frame:
    """One drawn screen."""

    image: Image.Image
    """RGB."""

    @property
    def box(self) -> Box:
        return Box(0, 0, *self.image.size)

    @cached_property
    def rgb(self) -> np.ndarray:
        """uint8 (height, width, 3), read only."""
        pixels = np.asarray(self.image)
        pixels.flags.writeable = False
        return pixels

    def with_parts(self, boxes: list[Box], other: Frame) -> Frame:
        """This frame with some boxes taken from another."""
        image = self.image.copy()
        for box in boxes:
            image.paste(other.image.crop(box), (box.left, box.top))
        return Frame(image)


def pack(frame: Frame, box: Box, form: PixelFormat) -> bytes:
    """The pixels of a box, row by row, in a client's format."""
    mode = _PILLOW.get((form.big_endian, form.shifts))
    if mode and form.true_colour and form.bits == 32 and form.maxima == (255, 255, 255):
        part = frame.image if box == frame.box else frame.image.crop(box)
        return part.tobytes("raw", mode)
    rgb = frame.rgb[box.top : box.bottom, box.left : box.right]  # (h, w, 3)
    red, green, blue = _tables(form.maxima, form.shifts) if form.true_colour else _tables(*MAPPED)
    values: np.ndarray = red[rgb[..., 0]] | green[rgb[..., 1]] | blue[rgb[..., 2]]  # uint32 (h, w)
    if form.bits == 24:
        octets: np.ndarray = values.astype(">u4" if form.big_endian else "<u4").view(np.uint8)
        octets = octets.reshape(*values.shape, 4)
        three: bytes = (octets[..., 1:] if form.big_endian else octets[..., :3]).tobytes()
        return three
    order = ">" if form.big_endian else "<"
    packed: bytes = values.astype(f"{order}u{form.bits // 8}").tobytes()
    return packed


MAPPED = ((7, 7, 3), (5, 2, 0))
"""Maxima and shifts of the palette sent to a client that wants a colour map."""


def palette() -> list[tuple[int, int, int]]:
    """The 256 colours that a client with a colour map is given."""
    maxima, shifts = MAPPED
    spec = list(zip(maxima, shifts, strict=True))
    colours = [[(i >> s & top) * 255 // top for top, s in spec] for i in range(256)]
    return [(red, green, blue) for red, green, blue in colours]


@lru_cache(maxsize=32)
def _tables(maxima: tuple[int, ...], shifts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Per channel: uint32 (256,), an 8-bit value scaled to its maximum and put in its place."""
    levels = np.arange(256, dtype=np.uint64)
    scaled = [
        (levels * top + 127) // 255 << np.uint64(s) for top, s in zip(maxima, shifts, strict=True)
    ]
    return tuple(table.astype(np.uint32) for table in scaled)


class RawEncoder:
    """Pixels as they are: the cheapest on loopback."""

    code = RAW

    def rectangle(self, frame: Frame, box: Box, form: PixelFormat) -> list[bytes]:
        """One rectangle, in parts: a copy of a large screen costs as much as packing it."""
        head = rectangle_header(box.left, box.top, box.width, box.height, RAW)
        return [head, pack(frame, box, form)]


class ZlibEncoder:
    """Pixels through one zlib stream, which lives as long as its connection."""

    code = ZLIB

    def __init__(self, level: int) -> None:
        self._deflate = zlib.compressobj(level)

    def rectangle(self, frame: Frame, box: Box, form: PixelFormat) -> list[bytes]:
        """One rectangle, in parts."""
        body = self._deflate.compress(pack(frame, box, form))
        rest = self._deflate.flush(zlib.Z_SYNC_FLUSH)
        head = rectangle_header(box.left, box.top, box.width, box.height, ZLIB)
        return [head, (len(body) + len(rest)).to_bytes(4, "big"), body, rest]


class Shown:
    """What a client's copy of the screen holds, as far as we sent it."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._known: np.ndarray | None = None  # bool (height, width); None: every pixel

    def take(self, frame: Frame, boxes: list[Box]) -> None:
        """The client was sent these boxes of a frame."""
        if boxes == [frame.box]:
            self._frame, self._known = frame, None
            return
        if self._frame is None:
            self._frame, self._known = frame, np.zeros(frame.rgb.shape[:2], bool)
        else:
            self._frame = self._frame.with_parts(boxes, frame)
        if self._known is not None:
            for box in boxes:
                self._known[box.top : box.bottom, box.left : box.right] = True

    def differences(self, frame: Frame, area: Box) -> list[Box]:
        """Boxes inside `area` that hold every pixel in which the client's copy is old."""
        if self._frame is None:
            return [area]
        if self._frame.image is frame.image and self._known is None:
            return []
        part = np.s_[area.top : area.bottom, area.left : area.right]
        changed = (self._frame.rgb[part] != frame.rgb[part]).any(axis=2)  # bool (h, w)
        if self._known is not None:
            changed |= ~self._known[part]
        return dirty_boxes(changed, area)


def dirty_boxes(changed: np.ndarray, area: Box) -> list[Box]:
    """Few tight boxes over the True entries of a bool (h, w) map of `area`."""
    boxes = [_tighten(changed, box) for box in _merge_rows(_tile_runs(changed))]
    return [Box.at(area.left + b.left, area.top + b.top, b.width, b.height) for b in boxes]


def _tile_runs(changed: np.ndarray) -> list[Box]:
    """Runs of neighbouring changed tiles, a row of tiles at a time; in pixels of `changed`."""
    height, width = changed.shape
    # Whole tiles only, so that one reshape asks every tile at once whether anything in it changed.
    padded = np.pad(changed, ((0, -height % TILE), (0, -width % TILE)))
    tiles = padded.reshape(padded.shape[0] // TILE, TILE, -1, TILE).any(axis=(1, 3))
    # With an unchanged tile on either side, +1 is where a run starts and -1 where it ends.
    edges = np.diff(np.pad(tiles, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    runs = []
    for row, line in enumerate(edges):
        starts, ends = np.flatnonzero(line == 1), np.flatnonzero(line == -1)
        runs += [
            Box(TILE * int(a), TILE * row, TILE * int(b), TILE * (row + 1))
            for a, b in zip(starts, ends, strict=True)
        ]
    return runs


def _merge_rows(runs: list[Box]) -> list[Box]:
    """Runs of the same columns in neighbouring rows become one box."""
    merged: dict[tuple[int, int, int], Box] = {}  # by (left, right, bottom)
    for run in runs:
        above = merged.pop((run.left, run.right, run.top), None)
        top = above.top if above else run.top
        merged[run.left, run.right, run.bottom] = Box(run.left, top, run.right, run.bottom)
    return list(merged.values())


def _tighten(changed: np.ndarray, box: Box) -> Box:
    part = changed[box.top : box.bottom, box.left : box.right]
    rows, columns = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
    left, top = box.left + int(columns[0]), box.top + int(rows[0])
    return Box(left, top, box.left + int(columns[-1]) + 1, box.top + int(rows[-1]) + 1)
