"""How the to-do list looks: where its widgets are and how they are painted.

Invariant: a widget is painted inside its box and every box lies inside the screen.
"""

from __future__ import annotations

from functools import lru_cache

from PIL import Image

from cua_lab.desktop.apps import paint
from cua_lab.desktop.apps.textfield import Field
from cua_lab.desktop.geometry import Box

ACCENT: paint.Colour = (56, 104, 214)
TINT: paint.Colour = (206, 220, 250)
LINE: paint.Colour = (208, 210, 216)
DONE: paint.Colour = (46, 158, 92)
REMOVE: paint.Colour = (206, 72, 66)
TICK = ((0.08, 0.55), (0.38, 0.86), (0.92, 0.16))


class Layout:
    """Where things are, in pixels: field and button on top, rows below."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        unit = min(width, height)
        self.pad = max(3, unit // 40)
        self.bar = max(18, round(unit / 7.5))
        self.row = max(16, round(unit / 8.5))
        self.text = max(10, round(self.row * 0.6))
        button = round(self.bar * 1.55)
        top = self.pad
        self.add = Box.at(width - self.pad - button, top, button, self.bar)
        self.field = Box(self.pad, top, self.add.left - self.pad, top + self.bar)
        self.top = self.field.bottom + self.pad
        self.rows = (height - self.top) // self.row

    def line(self, row: int) -> Box:
        """The whole of a row on the screen."""
        return Box.at(0, self.top + row * self.row, self.size[0], self.row)

    def check(self, row: int) -> Box:
        """The check box of a row."""
        return self._square(row, self.pad)

    def delete(self, row: int) -> Box:
        """The delete button of a row."""
        return self._square(row, self.size[0] - self.pad - self._side)

    @property
    def _side(self) -> int:
        return self.row - max(2, self.row // 6)

    def _square(self, row: int, left: int) -> Box:
        top = self.top + row * self.row + (self.row - self._side) // 2
        return Box.at(left, top, self._side, self._side)

    @property
    def inside(self) -> Box:
        """Where the text of the field is."""
        return self.field.grow(-max(2, self.pad - 1))

    def shift(self, field: Field) -> int:
        """Pixels by which the text is moved left so that the caret is seen."""
        caret = paint.text_width(field.text[: field.caret], self.text)
        return max(0, caret + 2 - self.inside.width)

    def caret_at(self, field: Field, x: int) -> int:
        """The place between two characters that is nearest to a click."""
        wanted = x - self.inside.left + self.shift(field)
        ends = [paint.text_width(field.text[:i], self.text) for i in range(len(field.text) + 1)]
        return min(range(len(ends)), key=lambda i: abs(ends[i] - wanted))


def paint_todo(
    layout: Layout, field: Field, rows: list[tuple[str, bool]], first: int, focus: str
) -> Image.Image:
    """The whole screen; `rows` are (text, done)."""
    image = _background(layout.size, layout.field, layout.add).copy()
    _paint_field(image, layout, field, focus == "field")
    if focus == "add":
        _ring(image, layout.add)
    for row, (text, done) in enumerate(rows[first : first + layout.rows]):
        _paint_row(image, layout, row, text, done)
        for kind, box in (("check", layout.check(row)), ("delete", layout.delete(row))):
            if focus == f"{kind}:{first + row}":
                _ring(image, box)
    if len(rows) > layout.rows:
        _paint_scrollbar(image, layout, first, len(rows))
    return image


@lru_cache(maxsize=8)
def _background(size: tuple[int, int], field: Box, add: Box) -> Image.Image:
    image = Image.new("RGB", size, paint.PAPER)
    radius = max(3, add.height // 5)
    paint.frame(image, field, LINE, paint.WHITE, radius)
    paint.fill(image, add, ACCENT, radius)
    text = paint.fitted("Add", add.width - 6, round(add.height * 0.58))
    paint.centred(image, paint.label_mask("Add", text), add, paint.WHITE)
    return image


def _paint_field(image: Image.Image, layout: Layout, field: Field, focused: bool) -> None:
    inside = layout.inside
    if focused:
        _ring(image, layout.field)
    strip = Image.new("RGB", (inside.width, inside.height), paint.WHITE)
    left, top = -layout.shift(field), (inside.height - paint.line_height(layout.text)) // 2
    if field.selected:
        width = paint.text_width(field.text, layout.text)
        strip.paste(TINT, (max(0, left), 0, left + width, inside.height))
    if field.text:
        strip.paste(paint.INK, (left, top), paint.text_mask(field.text, layout.text))
    elif not focused:
        strip.paste(paint.MUTED, (0, top), paint.text_mask("New item", layout.text))
    if focused:
        x = min(left + paint.text_width(field.text[: field.caret], layout.text), inside.width - 1)
        thick = max(1, layout.text // 12)
        strip.paste(ACCENT, (x, 1, x + thick, inside.height - 1))
    image.paste(strip, (inside.left, inside.top))


def _paint_row(image: Image.Image, layout: Layout, row: int, text: str, done: bool) -> None:
    line, check, delete = layout.line(row), layout.check(row), layout.delete(row)
    inset = max(1, check.width // 8)
    image.paste(_checkbox(check.width, inset, done), (check.left, check.top))
    side = delete.width
    cross = _cross(side)
    image.paste(REMOVE, (delete.left, delete.top), cross)
    left = check.right + layout.pad
    mask = _clipped(text, layout.text, delete.left - layout.pad - left)
    top = line.top + (line.height - paint.line_height(layout.text)) // 2
    image.paste(paint.MUTED if done else paint.INK, (left, top), mask)
    if done:
        middle = line.top + line.height // 2
        image.paste(paint.MUTED, (left, middle, left + mask.width, middle + max(1, side // 14)))


@lru_cache(maxsize=2048)
def _clipped(text: str, size: int, width: int) -> Image.Image:
    """The text, or as much of it as fits before an ellipsis."""
    if paint.text_width(text, size) <= width:
        return paint.text_mask(text or " ", size)
    while text and paint.text_width(text + "…", size) > width:
        text = text[:-1]
    return paint.text_mask(text.rstrip() + "…", size)


@lru_cache(maxsize=32)
def _checkbox(side: int, inset: int, done: bool) -> Image.Image:
    image = Image.new("RGB", (side, side), paint.PAPER)
    box = Box(0, 0, side, side).grow(-inset)
    radius = max(2, side // 6)
    if done:
        paint.fill(image, box, DONE, radius)
        tick = paint.stroke_mask(box.width * 5 // 8, box.height * 5 // 8, TICK, max(1.6, side / 9))
        paint.centred(image, tick, box, paint.WHITE)
    else:
        paint.frame(image, box, paint.MUTED, paint.WHITE, radius, max(1, side // 14))
    return image


@lru_cache(maxsize=8)
def _cross(side: int) -> Image.Image:
    arm = side // 2
    mask = Image.new("L", (side, side))
    at = ((side - arm) // 2, (side - arm) // 2)
    for points in (((0.05, 0.05), (0.95, 0.95)), ((0.05, 0.95), (0.95, 0.05))):
        line = paint.stroke_mask(arm, arm, points, max(1.4, side / 11))
        mask.paste(255, at, line)
    return mask


@lru_cache(maxsize=64)
def _ring_mask(width: int, height: int, radius: int, thick: int) -> Image.Image:
    mask = paint.rounded_mask(width, height, radius).copy()
    hole = paint.rounded_mask(width - 2 * thick, height - 2 * thick, max(1, radius - thick))
    mask.paste(0, (thick, thick), hole)
    return mask


def _ring(image: Image.Image, box: Box) -> None:
    """The focus: a blue border around a widget, with a light gap where it is blue itself."""
    thick = max(1, box.height // 24) + 1
    radius = max(3, box.height // 5)
    outer = box.grow(1)
    image.paste(
        paint.INK, (outer.left, outer.top), _ring_mask(outer.width, outer.height, radius, thick)
    )


def _paint_scrollbar(image: Image.Image, layout: Layout, first: int, count: int) -> None:
    track = layout.rows * layout.row
    length = max(8, track * layout.rows // count)
    top = layout.top + (track - length) * first // (count - layout.rows)
    image.paste(paint.MUTED, (layout.size[0] - 2, top, layout.size[0], top + length))
