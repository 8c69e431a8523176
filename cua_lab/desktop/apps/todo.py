"""A to-do list: type, add, check, delete, by mouse or by keyboard.

State: the items, the text being typed with its caret, and the widget that has the focus. Widgets
are named `field`, `add`, and per item `check:0`, `delete:0`, ...; Tab walks through them in that
order and `boxes` says where each is. Invariant: the focus is always on a widget that exists, and
on the screen after the next drawing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from cua_lab.desktop import app as masks
from cua_lab.desktop import keysyms
from cua_lab.desktop.apps import todo_view
from cua_lab.desktop.apps.base import Painted
from cua_lab.desktop.apps.textfield import Field
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.screen_context import Element, Form
from cua_lab.errors import LabError

CHORES = (
    "Buy milk", "Call mum", "Pay rent", "Feed cat", "Book train", "Fix bike", "Walk dog",
    "Water plants", "Send mail", "Read paper", "Clean desk", "Bake bread", "Plan trip",
    "Wash car", "Sort files", "Cook soup",
)  # fmt: skip
"""What a seeded list is drawn from; each fits on a 128 pixel screen."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to do."""

    text: str
    done: bool = False


class Todo(Painted):
    """The app. `items` is the list to begin with (all open); else `count` seeded chores."""

    def __init__(
        self,
        width: int = 128,
        height: int = 128,
        *,
        items: Sequence[str] | None = None,
        count: int = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(width, height)
        if not 0 <= count <= len(CHORES):
            raise LabError(f"count is {count}; expected 0 to {len(CHORES)} seeded items")
        self._initial = None if items is None else tuple(items)
        self._count = count
        self._layout = todo_view.Layout(width, height)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """The list to begin with, an empty field with the focus."""
        self._seed, rng = seed, random.Random(seed)
        texts = rng.sample(CHORES, self._count) if self._initial is None else self._initial
        self.items = [Item(text) for text in texts]
        self.field = Field()
        self.focus = "field"
        self.first = 0  # index of the topmost item on the screen
        self._held: set[int] = set()
        self._buttons = 0
        self._touch()

    @property
    def widgets(self) -> list[str]:
        """All widgets in the order in which Tab walks through them."""
        rows = [f"{kind}:{i}" for i in range(len(self.items)) for kind in ("check", "delete")]
        return ["field", "add", *rows]

    @property
    def boxes(self) -> dict[str, Box]:
        """Where each widget on the screen is; items that are scrolled away are missing."""
        found = {"field": self._layout.field, "add": self._layout.add}
        for row in range(min(self._layout.rows, len(self.items) - self.first)):
            i = self.first + row
            found[f"check:{i}"] = self._layout.check(row)
            found[f"delete:{i}"] = self._layout.delete(row)
        return found

    def state(self) -> dict[str, Any]:
        """`items` (text, done), `text` and `caret` of the field, `focus`."""
        return {
            "app": "todo",
            "seed": self._seed,
            "items": [{"text": item.text, "done": item.done} for item in self.items],
            "text": self.field.text,
            "caret": self.field.caret,
            "focus": self.focus,
        }

    def element_at(self, at: tuple[int, int]) -> Element | None:
        """The widget at a point of the screen."""
        widget = self._widget_at(*at)
        return None if widget is None else self._element(widget)

    def focused_element(self) -> Element | None:
        """The widget that the keys go to."""
        return self._element(self.focus)

    def _element(self, widget: str) -> Element:
        kind, _, index = widget.partition(":")
        if kind == "field":
            return Element("textbox", "New item", "text", form=Form(button="Add"))
        if kind == "add":
            return Element("button", "Add", "button")
        text = self.items[int(index)].text
        if kind == "check":
            return Element("checkbox", text, "checkbox")
        return Element("button", f"Delete {text}", "button")

    def key(self, keysym: int, down: bool) -> None:
        """Tab moves the focus; what another key does is up to the widget that has it."""
        keysym = keysyms.fold_keypad(keysym)
        if keysym in keysyms.SHIFTS or keysym in keysyms.COMMANDS:
            (self._held.add if down else self._held.discard)(keysym)
        elif down:
            self._pressed(keysym)
            self._touch()

    def pointer(self, x: int, y: int, buttons: int) -> None:
        """The left button going down clicks; the wheel scrolls the list."""
        fresh, self._buttons = buttons & ~self._buttons, buttons
        if fresh & masks.LEFT:
            self._clicked(x, y)
        if fresh & masks.WHEEL_UP:
            self._scroll_to(self.first - 1)
        if fresh & masks.WHEEL_DOWN:
            self._scroll_to(self.first + 1)

    def add(self) -> None:
        """Put the text of the field at the end of the list, unless it is blank."""
        text = self.field.text.strip()
        if text:
            self.items.append(Item(text))
            self.field = Field()
            self._scroll_to(len(self.items))
        self.focus = "field"

    def toggle(self, index: int) -> None:
        """Check an item, or uncheck it."""
        self.items[index] = replace(self.items[index], done=not self.items[index].done)

    def remove(self, index: int) -> None:
        """Delete an item; the focus goes to the one that takes its place."""
        del self.items[index]
        left = min(index, len(self.items) - 1)
        self.focus = (
            f"{self.focus.split(':')[0]}:{left}" if ":" in self.focus and left >= 0 else "field"
        )
        self._scroll_to(self.first)

    def _pressed(self, keysym: int) -> None:
        shift, command = bool(self._held & keysyms.SHIFTS), bool(self._held & keysyms.COMMANDS)
        if keysym == keysyms.ISO_LEFT_TAB or (keysym == keysyms.TAB and shift):
            self._move_focus(-1)
        elif keysym == keysyms.TAB:
            self._move_focus(1)
        elif command:
            if self.focus == "field" and keysyms.text_of(keysym) in ("a", "A"):
                self.field = self.field.select_all()
        elif self.focus == "field":
            self._typed(keysym, shift)
        elif keysym in (keysyms.RETURN, 0x20):
            self._activate(self.focus)
        elif keysym in (keysyms.UP, keysyms.DOWN):
            self._move_focus(-2 if keysym == keysyms.UP else 2)
        elif keysym == keysyms.DELETE and ":" in self.focus:
            self.remove(int(self.focus.split(":")[1]))

    def _typed(self, keysym: int, shift: bool) -> None:
        text = keysyms.text_of(keysym, shift)
        if keysym == keysyms.RETURN:
            self.add()
        elif text is not None:
            self.field = self.field.insert(text)
        else:
            self.field = self.field.edited(keysym)

    def _move_focus(self, by: int) -> None:
        widgets = self.widgets
        self.focus = widgets[(widgets.index(self.focus) + by) % len(widgets)]
        if ":" in self.focus:
            index = int(self.focus.split(":")[1])
            self._scroll_to(min(self.first, index))
            self._scroll_to(max(self.first, index - self._layout.rows + 1))

    def _clicked(self, x: int, y: int) -> None:
        widget = self._widget_at(x, y)
        if widget is None:
            return
        self.focus = widget
        if widget == "field":
            self.field = self.field.at(self._layout.caret_at(self.field, x))
        else:
            self._activate(widget)
        self._touch()

    def _widget_at(self, x: int, y: int) -> str | None:
        return next((name for name, box in self.boxes.items() if box.contains(x, y)), None)

    def _activate(self, widget: str) -> None:
        kind, _, index = widget.partition(":")
        if kind == "add":
            self.add()
        elif kind == "check":
            self.toggle(int(index))
        else:
            self.remove(int(index))

    def _scroll_to(self, first: int) -> None:
        self.first = min(max(0, first), max(0, len(self.items) - self._layout.rows))
        self._touch()

    def _paint(self) -> Image.Image:
        rows = [(item.text, item.done) for item in self.items]
        return todo_view.paint_todo(self._layout, self.field, rows, self.first, self.focus)
