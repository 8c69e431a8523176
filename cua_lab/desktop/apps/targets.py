"""Targets: one thing to click among others, in three levels.

Level 1: the red button among grey, blue and green ones. Level 2: the button of the named colour.
Level 3: the shape with the given label. A click is the left button going down. Invariants: boxes
lie inside the screen, do not touch, and exactly one of them fits the instruction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from math import cos, sin, tau
from typing import Any

from PIL import Image

from cua_lab.desktop import app as masks
from cua_lab.desktop.apps import paint
from cua_lab.desktop.apps.base import Painted
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.screen_context import Element
from cua_lab.errors import LabError

BACKGROUND: paint.Colour = (243, 244, 246)
COLOURS: dict[str, paint.Colour] = {
    "red": (222, 52, 48),
    "grey": (150, 156, 166),
    "blue": (52, 108, 222),
    "green": (40, 158, 84),
    "yellow": (244, 196, 36),
    "purple": (138, 74, 196),
    "orange": (242, 128, 32),
    "pink": (240, 120, 176),
    "black": (46, 48, 56),
}
QUIET = ("grey", "blue", "green")
"""Colours of the distractors in level 1."""
DISTRACTORS = {1: (0, 2), 2: (1, 3), 3: (1, 3)}
"""Fewest and most distractors of a level, unless somebody says otherwise."""
LABELS = "ABCDEFGHKLMNPRSTUVXYZ"
"""Letters nobody takes for another one."""
SHAPES: dict[str, tuple[tuple[float, float], ...] | None] = {
    "square": None,  # with round corners
    "circle": tuple(
        (0.5 + cos(a) / 2, 0.5 + sin(a) / 2) for a in (tau * i / 48 for i in range(48))
    ),
    "diamond": ((0.5, 0), (1, 0.5), (0.5, 1), (0, 0.5)),
    "hexagon": ((0.25, 0), (0.75, 0), (1, 0.5), (0.75, 1), (0.25, 1), (0, 0.5)),
    "triangle": ((0.5, 0), (1, 1), (0, 1)),
}
MARGIN, GAP = 4, 4
"""Pixels between a box and the edge, and between two boxes."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that can be clicked."""

    box: Box
    colour: str
    shape: str = "square"
    label: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "box": list(self.box),
            "colour": self.colour,
            "shape": self.shape,
            "label": self.label,
        }


class Targets(Painted):
    """The task. Sizes are in pixels, (smallest, largest); so is the number of distractors.

    By default boxes are 24-40 by 20-28 pixels on a screen of 128x128, and in proportion on a larger
    one: big enough to read, small enough that a blind click, even into the middle of the screen,
    hits less than one time in ten.
    """

    def __init__(
        self,
        level: int = 1,
        *,
        width: int = 128,
        height: int = 128,
        box_width: tuple[int, int] | None = None,
        box_height: tuple[int, int] | None = None,
        distractors: tuple[int, int] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(width, height)
        if level not in (1, 2, 3):
            raise LabError(f"targets has the levels 1, 2 and 3; got {level!r}")
        self.level = level
        unit = min(width, height) / 128
        box_width = box_width or (round(24 * unit), round(40 * unit))
        box_height = box_height or (round(20 * unit), round(28 * unit))
        distractors = DISTRACTORS[level] if distractors is None else distractors
        self._widths, self._heights, self._counts = box_width, box_height, distractors
        _check_range("box_width", box_width, 8)
        _check_range("box_height", box_height, 8)
        _check_range("distractors", distractors, 0)
        most = {1: 8, 2: len(COLOURS) - 1, 3: len(LABELS) - 1}[level]
        if distractors[1] > most:
            raise LabError(f"at most {most} distractors in level {level}; got {distractors[1]}")
        room = (width - 2 * MARGIN + GAP) * (height - 2 * MARGIN + GAP)
        used = (distractors[1] + 1) * (box_width[1] + GAP) * (box_height[1] + GAP)
        if used > 0.6 * room or box_width[1] > width - 8 or box_height[1] > height - 8:
            raise LabError(
                f"{distractors[1] + 1} boxes of up to {box_width[1]}x{box_height[1]} pixels do not "
                f"fit on {width}x{height}; take fewer, smaller ones or a larger screen"
            )
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """A new layout; nothing clicked yet."""
        self._seed, rng = seed, random.Random(seed)
        boxes = self._place(rng, 1 + rng.randint(*self._counts))
        self.things = tuple(_dress(self.level, boxes, rng))
        self.target = self.things[0]
        self.clicks = 0
        self.last_click: tuple[int, int] | None = None
        self.first_hit: bool | None = None
        self._held = False
        self._touch()

    @property
    def instruction(self) -> str:
        """What to do, in words."""
        if self.level == 3:
            return f"Click the shape labelled {self.target.label}."
        return f"Click the {self.target.colour} button."

    @property
    def boxes(self) -> list[Box]:
        """The boxes of all things; the target's comes first."""
        return [thing.box for thing in self.things]

    @property
    def hit(self) -> bool:
        """Whether the last click was inside the target's box."""
        return self.last_click is not None and self.target.box.contains(*self.last_click)

    def element_at(self, at: tuple[int, int]) -> Element | None:
        """The thing at a point of the screen."""
        thing = next((thing for thing in self.things if thing.box.contains(*at)), None)
        if thing is None:
            return None
        return Element("button", thing.label or f"{thing.colour} {thing.shape}", "button")

    def focused_element(self) -> Element | None:
        """Keys do nothing here."""
        return None

    def key(self, keysym: int, down: bool) -> None:
        """Targets are clicked."""

    def pointer(self, x: int, y: int, buttons: int) -> None:
        """The left button going down is a click."""
        pressed = bool(buttons & masks.LEFT)
        if pressed and not self._held:
            self.clicks += 1
            self.last_click = (x, y)
            if self.first_hit is None:
                self.first_hit = self.hit
            self._touch()
        self._held = pressed

    def state(self) -> dict[str, Any]:
        """`instruction`, `target` (box), `things`, `clicks`, `last_click`, `hit`, `first_hit`."""
        return {
            "app": "targets",
            "seed": self._seed,
            "level": self.level,
            "instruction": self.instruction,
            "target": list(self.target.box),
            "boxes": [list(box) for box in self.boxes],
            "things": [thing.to_json() for thing in self.things],
            "clicks": self.clicks,
            "last_click": None if self.last_click is None else list(self.last_click),
            "hit": self.hit,
            "first_hit": self.first_hit,
        }

    def _place(self, rng: random.Random, count: int) -> list[Box]:
        """Boxes of random sizes at random places, clear of each other; start over when stuck."""
        for _ in range(2000):
            boxes: list[Box] = []
            for _ in range(40 * count):
                box = self._random_box(rng)
                if not any(box.grow(GAP).overlap(other) for other in boxes):
                    boxes.append(box)
                if len(boxes) == count:
                    return boxes
        raise LabError(f"found no place for {count} boxes; take fewer or smaller ones")

    def _random_box(self, rng: random.Random) -> Box:
        width, height = rng.randint(*self._widths), rng.randint(*self._heights)
        left = rng.randint(MARGIN, self.size[0] - MARGIN - width)
        return Box.at(left, rng.randint(MARGIN, self.size[1] - MARGIN - height), width, height)

    def _paint(self) -> Image.Image:
        image = Image.new("RGB", self.size, BACKGROUND)
        for thing in self.things:
            done = thing is self.target and self.hit
            _paint_thing(image, thing, done)
        if self.last_click is not None and not self.hit:
            _paint_miss(image, *self.last_click, arm=max(4, min(self.size) // 32))
        return image


def _check_range(name: str, pair: tuple[int, int], least: int) -> None:
    if len(pair) != 2 or not least <= pair[0] <= pair[1]:
        raise LabError(f"{name} is {pair}; expected (smallest, largest), from {least} on")


def _dress(level: int, boxes: list[Box], rng: random.Random) -> list[Thing]:
    """Give boxes a colour (level 1: red first), and in level 3 a shape and a label."""
    if level == 1:
        return [Thing(box, "red" if i == 0 else rng.choice(QUIET)) for i, box in enumerate(boxes)]
    if level == 2:
        colours = rng.sample(list(COLOURS), len(boxes))
        return [Thing(box, colour) for box, colour in zip(boxes, colours, strict=True)]
    labels = rng.sample(LABELS, len(boxes))
    return [
        Thing(box, rng.choice(list(COLOURS)), rng.choice(list(SHAPES)), label)
        for box, label in zip(boxes, labels, strict=True)
    ]


@lru_cache(maxsize=1024)
def _shape_mask(shape: str, width: int, height: int) -> Image.Image:
    points = SHAPES[shape]
    if points is not None:
        return paint.polygon_mask(width, height, points)
    return paint.rounded_mask(width, height, max(3, min(width, height) // 5))


def _paint_thing(image: Image.Image, thing: Thing, done: bool) -> None:
    box, colour = thing.box, COLOURS[thing.colour]
    edge = paint.mixed(colour, paint.INK, 0.35)
    image.paste(edge, (box.left, box.top), _shape_mask(thing.shape, box.width, box.height))
    inner = box.grow(-1)
    image.paste(
        colour, (inner.left, inner.top), _shape_mask(thing.shape, inner.width, inner.height)
    )
    ink = paint.INK if thing.colour in ("yellow", "orange", "pink") else paint.WHITE
    low = Box(box.left, box.top + box.height // 5, box.right, box.bottom)
    middle = low if thing.shape == "triangle" else box
    if done:
        side = min(box.width, box.height) * 3 // 5
        tick = paint.stroke_mask(side, side, ((0.1, 0.55), (0.4, 0.85), (0.9, 0.2)), side / 6)
        paint.centred(image, tick, middle, ink)
    elif thing.label:
        size = min(box.height, box.width) * (7 if thing.shape != "triangle" else 5) // 12
        paint.centred(image, paint.label_mask(thing.label, size), middle, ink)


def _paint_miss(image: Image.Image, x: int, y: int, *, arm: int) -> None:
    """A small cross where a click missed."""
    side = 2 * arm + 1
    for points in (((0.1, 0.1), (0.9, 0.9)), ((0.1, 0.9), (0.9, 0.1))):
        mask = paint.stroke_mask(side, side, points, arm * 0.45)
        paint.centred(image, mask, Box.at(x - arm, y - arm, side, side), paint.INK)
