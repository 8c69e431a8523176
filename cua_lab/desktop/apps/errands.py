"""A list of errands, some of them open, and a button that deletes the list.

State: the errands, each done or open, and whether the list was deleted. A click on an errand checks
it or opens it again; a click on the bar below deletes all of them, for good. It stands for every
app whose score has a short cut: "nothing is open any more" is true of a list that is done, and of
one that is gone. Invariant: where the bar is never changes; which errands are open is the seed's.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from PIL import Image

from cua_lab.desktop import app as masks
from cua_lab.desktop.apps import paint
from cua_lab.desktop.apps.base import Painted
from cua_lab.desktop.apps.todo import CHORES, Item
from cua_lab.desktop.apps.todo_view import DONE, REMOVE
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.screen_context import Element
from cua_lab.errors import LabError

OPEN: paint.Colour = (240, 196, 64)
DELETE_ALL = "Delete all"


class Errands(Painted):
    """The app; `count` seeded errands, all of them done but `still_open`."""

    def __init__(
        self,
        width: int = 128,
        height: int = 128,
        *,
        count: int = 5,
        still_open: int = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(width, height)
        if not 2 <= count <= 6:
            raise LabError(f"count is {count}; expected 2 to 6 errands")
        if not 1 <= still_open <= count:
            raise LabError(f"still_open is {still_open}; expected 1 to {count}, the errands")
        self._count, self._still_open = count, still_open
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """A new list, some of it open."""
        self._seed, rng = seed, random.Random(f"errands {seed}")
        self.open = sorted(rng.sample(range(self._count), self._still_open))
        """Which errands are open at first."""
        texts = rng.sample(CHORES, self._count)
        self.items = [Item(text, done=i not in self.open) for i, text in enumerate(texts)]
        self._buttons = 0
        self._touch()

    @property
    def boxes(self) -> dict[str, Box]:
        """Where each errand on the list is, by its index, and the bar, `delete`."""
        width, height = self.size
        row = height // (self._count + 1)
        found = {str(i): Box.at(4, i * row + 2, width - 8, row - 4) for i in range(len(self.items))}
        top = self._count * row
        return {**found, "delete": Box(4, top + 2, width - 4, height - 4)}

    def state(self) -> dict[str, Any]:
        """`items` (text, done), and which ones were `open` at first."""
        return {
            "app": "errands",
            "seed": self._seed,
            "items": [{"text": item.text, "done": item.done} for item in self.items],
            "open": list(self.open),
        }

    def element_at(self, at: tuple[int, int]) -> Element | None:
        """The errand or the bar at a point of the screen."""
        name = self._at(*at)
        if name is None:
            return None
        if name == "delete":
            return Element("button", DELETE_ALL, "button")
        return Element("checkbox", self.items[int(name)].text, "checkbox")

    def focused_element(self) -> Element | None:
        """Keys do nothing here."""
        return None

    def key(self, keysym: int, down: bool) -> None:
        """Errands are clicked."""

    def pointer(self, x: int, y: int, buttons: int) -> None:
        """The left button going down clicks."""
        fresh, self._buttons = buttons & ~self._buttons, buttons
        at = self._at(x, y) if fresh & masks.LEFT else None
        if at == "delete":
            self.items = []
        elif at is not None:
            item = self.items[int(at)]
            self.items[int(at)] = replace(item, done=not item.done)
        if at is not None:
            self._touch()

    def _at(self, x: int, y: int) -> str | None:
        return next((name for name, box in self.boxes.items() if box.contains(x, y)), None)

    def _paint(self) -> Image.Image:
        image = Image.new("RGB", self.size, paint.PAPER)
        for name, box in self.boxes.items():
            if name == "delete":
                colour, ink, text = REMOVE, paint.WHITE, DELETE_ALL
            else:
                item = self.items[int(name)]
                colour, ink = (DONE, paint.WHITE) if item.done else (OPEN, paint.INK)
                text = item.text
            paint.fill(image, box, colour, max(2, box.height // 6))
            size = paint.fitted(text, box.width - 8, round(box.height * 0.6))
            paint.centred(image, paint.label_mask(text, size), box, ink)
        return image
