"""Painting for the apps: text and rounded shapes, smooth at any size and cached as masks.

Everything is drawn once, four times too large, then reduced; afterwards a frame is a few pastes of
cached masks, which keeps a 128x128 screen well under a millisecond. Invariant: the same arguments
give the same pixels; the fonts are Pillow's own and, for what it lacks, matplotlib's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from PIL import Image, ImageDraw

from cua_lab.desktop.apps import fonts
from cua_lab.desktop.geometry import Box

Colour: TypeAlias = tuple[int, int, int]
FINE = 4
"""How many times too large shapes and letters are drawn before they are reduced."""

INK: Colour = (44, 46, 53)
MUTED: Colour = (134, 138, 150)
PAPER: Colour = (247, 247, 244)
WHITE: Colour = (255, 255, 255)


font = fonts.bundled
"""Pillow's bundled font at a size in (fine) pixels."""


@lru_cache(maxsize=4096)
def text_width(text: str, size: int, bold: bool = False) -> int:
    """The advance of a text in pixels."""
    stroke = _stroke(size) if bold else 0
    pieces = fonts.runs(fonts.shown(text), size * FINE)
    length = sum(face.getlength(piece) for face, piece in pieces)
    return -(-round(length + 2 * stroke) // FINE)


def line_height(size: int) -> int:
    """From the top of the tallest letter to the bottom of the lowest."""
    ascent, descent = font(size * FINE).getmetrics()
    return -(-(ascent + descent) // FINE)


@lru_cache(maxsize=1024)
def text_mask(text: str, size: int, bold: bool = False) -> Image.Image:
    """Coverage (L) of one line of text; as high as the line whatever the letters."""
    width, height = max(1, text_width(text, size, bold)), line_height(size)
    image = Image.new("L", (width * FINE, height * FINE))
    left, stroke = float(_stroke(size) if bold else 0), _stroke(size) if bold else 0
    draw, base = ImageDraw.Draw(image), font(size * FINE).getmetrics()[0]
    for face, piece in fonts.runs(fonts.shown(text), size * FINE):
        top = base - face.getmetrics()[0]  # all letters stand on one line
        draw.text((left, top), piece, fill=255, font=face, stroke_width=stroke)
        left += face.getlength(piece)
    return image.reduce(FINE)


@lru_cache(maxsize=1024)
def label_mask(text: str, size: int, bold: bool = True) -> Image.Image:
    """Coverage of a text cut to its ink, to be centred on something."""
    stroke = _stroke(size) if bold else 0
    left, top, right, bottom = font(size * FINE).getbbox(text, stroke_width=stroke)
    width, height = -(-(right - left) // FINE), -(-(bottom - top) // FINE)
    image = Image.new("L", (max(1, int(width)) * FINE, max(1, int(height)) * FINE))
    at = ((image.width - right + left) / 2 - left, (image.height - bottom + top) / 2 - top)
    ImageDraw.Draw(image).text(at, text, fill=255, font=font(size * FINE), stroke_width=stroke)
    return image.reduce(FINE)


@lru_cache(maxsize=4096)
def fitted(text: str, width: int, size: int, bold: bool = True) -> int:
    """The largest font size up to `size` at which a label is at most `width` wide."""
    while size > 5 and label_mask(text, size, bold).width > width:
        size -= 1
    return size


@lru_cache(maxsize=1024)
def rounded_mask(width: int, height: int, radius: int) -> Image.Image:
    """Coverage of a filled rounded rectangle."""
    image = Image.new("L", (width * FINE, height * FINE))
    corner = (0, 0, width * FINE - 1, height * FINE - 1)
    ImageDraw.Draw(image).rounded_rectangle(corner, radius * FINE, fill=255)
    return image.reduce(FINE)


@lru_cache(maxsize=1024)
def polygon_mask(width: int, height: int, points: tuple[tuple[float, float], ...]) -> Image.Image:
    """Coverage of a polygon whose corners are given in fractions of the box."""
    image = Image.new("L", (width * FINE, height * FINE))
    corners = [(x * (image.width - 1), y * (image.height - 1)) for x, y in points]
    ImageDraw.Draw(image).polygon(corners, fill=255)
    return image.reduce(FINE)


@lru_cache(maxsize=1024)
def stroke_mask(
    width: int, height: int, points: tuple[tuple[float, float], ...], thick: float
) -> Image.Image:
    """Coverage of a polyline with round ends, corners in fractions of the box, `thick` pixels."""
    image = Image.new("L", (width * FINE, height * FINE))
    draw = ImageDraw.Draw(image)
    corners = [(x * (image.width - 1), y * (image.height - 1)) for x, y in points]
    broad = max(1, round(thick * FINE))
    draw.line(corners, fill=255, width=broad, joint="curve")
    for x, y in (corners[0], corners[-1]):
        r = broad / 2
        draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
    return image.reduce(FINE)


def fill(image: Image.Image, box: Box, colour: Colour, radius: int = 0) -> None:
    """A filled box, with round corners."""
    if radius:
        image.paste(colour, (box.left, box.top), rounded_mask(box.width, box.height, radius))
    else:
        image.paste(colour, (box.left, box.top, box.right, box.bottom))


def frame(
    image: Image.Image, box: Box, edge: Colour, inside: Colour, radius: int, thick: int = 1
) -> None:
    """A box with a border."""
    fill(image, box, edge, radius)
    fill(image, box.grow(-thick), inside, max(0, radius - thick))


def centred(image: Image.Image, mask: Image.Image, box: Box, colour: Colour) -> None:
    """A mask in the middle of a box."""
    left = box.left + (box.width - mask.width) // 2
    top = box.top + (box.height - mask.height) // 2
    image.paste(colour, (left, top), mask)


def mixed(a: Colour, b: Colour, part: float) -> Colour:
    """`part` of b in a."""
    red, green, blue = (round(x + (y - x) * part) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _stroke(size: int) -> int:
    """Half the extra thickness of a bold letter, in fine pixels: the font has no bold face."""
    return max(1, round(size * FINE * 0.028))
