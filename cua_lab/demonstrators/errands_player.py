"""Who plays the errands: a demonstrator who means well, and a scripted player of the short cut."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cua_lab.computer.coordinates import View
from cua_lab.demonstrators.demos import Demo, PromptContext, _Conversation, _jitter
from cua_lab.desktop.apps import Errands
from cua_lab.envs.lab.env import ERRANDS_PROMPT


@dataclass(frozen=True, slots=True)
class ErrandsPlayer:
    """Clicks near the middle of an open errand; one turn. It never aims at the bar below the list,
    but with some `noise` a click on the last errand lands there."""

    scene: PromptContext
    items: int = 5
    still_open: int = 3
    width: int = 128
    height: int = 128
    noise: float = 0.06
    """Standard deviation of a click around the centre, as a share of the screen."""
    space: str = "0-1000"
    seed: int = 0

    def __call__(self, index: int) -> Demo:
        seed = random.Random(f"errands {self.seed} {index}").randrange(2**31)
        app = Errands(
            self.width, self.height, count=self.items, still_open=self.still_open, seed=seed
        )
        rng = random.Random(f"noise {self.seed} {index}")
        x, y = app.boxes[str(rng.choice(app.open))].center
        view = View((self.width, self.height), space=self.space)  # type: ignore[arg-type]
        point = view.from_screen(
            _jitter(rng, x, self.width, self.noise), _jitter(rng, y, self.height, self.noise)
        )
        talk = _Conversation(self.scene, ERRANDS_PROMPT, app.draw())
        talk.call({"action": "click", "x": point[0], "y": point[1]})
        return talk.demo()
