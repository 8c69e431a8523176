"""Who checks off to-dos: it says the list and the row that is asked for, then clicks a check box.

What it says is always right; the row that it clicks is often another one, so that GRPO has
something to find. Invariant: a demo is a function of the player and its index.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from cua_lab.computer.coordinates import View
from cua_lab.demonstrators.demos import Demo, PromptContext, _Conversation, _jitter
from cua_lab.desktop.app import LEFT
from cua_lab.desktop.apps import Todo, todo_view
from cua_lab.desktop.apps.transcripts import list_thought
from cua_lab.envs.lab.starts import complete_prompt, list_to_complete
from cua_lab.errors import LabError


@dataclass(frozen=True, slots=True)
class TodoPlayer:
    """Clicks one check box a turn, as many as there are items to complete."""

    prompt: PromptContext
    items: int = 3
    complete: int = 1
    width: int = 128
    height: int = 128
    noise: float = 0.02
    """Standard deviation of a click around the middle of the box, as a share of the screen; a box
    is a tenth of it."""
    random_rows: float = 0.5
    """Share of clicks on a row that comes from nowhere; the others are on the row that was named.
    With 0.5 the demonstrator checks the right one of three items in two of three demos."""
    space: str = "0-1000"
    think: str | None = None
    """`list`: it says the texts of the list, and the row of the one that it is after."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.think not in (None, "list"):
            raise LabError(f"think is {self.think!r}; a player of to-dos says list")
        if not 0 <= self.random_rows <= 1:
            raise LabError(f"random_rows is {self.random_rows}; expected a share from 0 to 1")
        room = todo_view.Layout(self.width, self.height).rows
        if not 1 <= self.items <= room:
            raise LabError(f"items is {self.items}; a screen of this size has room for {room}")

    def __call__(self, index: int) -> Demo:
        rng = random.Random(f"todo {self.seed} {index}")
        texts, wanted = list_to_complete(rng.randrange(2**31), self.items, self.complete)
        app = Todo(self.width, self.height, items=texts)
        view = View((self.width, self.height), space=self.space)  # type: ignore[arg-type]
        talk = _Conversation(self.prompt, complete_prompt(wanted), app.draw())
        for turn, text in enumerate(wanted):
            if turn:
                talk.result(app.draw())
            stray = rng.random() < self.random_rows
            row = rng.randrange(self.items) if stray else texts.index(text)
            x, y = app.boxes[f"check:{row}"].center
            x = _jitter(rng, x, self.width, self.noise)
            y = _jitter(rng, y, self.height, self.noise)
            said = list_thought(texts, text) if self.think else ""
            across, down = view.from_screen(x, y)
            talk.call({"action": "click", "x": across, "y": down}, said)
            for buttons in (LEFT, 0):
                app.pointer(x, y, buttons)
        return talk.demo()
