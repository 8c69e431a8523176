"""Synthetic episodes to stitch: their ids, without a model.

An episode is a growing prompt with one screenshot a turn and a call for each answer. With
divergences, every answer has a blank line before its call that the next prompt shows as a single
newline.
"""

from __future__ import annotations

import random

from cua_lab.demonstrators.demos import SCREEN
from cua_lab.stitching.codec import TableCodec

CONTROL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
TOKENS_A_TURN = 667
"""16,000 tokens in 24 turns."""
ANSWER = "The red button is on the left of the window, so I will click in its middle"


class Vocabulary:
    """Gives each text an id as it comes, above the control ids."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, *texts: str) -> list[int]:
        return [self._id(text) for text in texts]

    def _id(self, text: str) -> int:
        if text in CONTROL:
            return 1000 + CONTROL.index(text)
        return self.ids.setdefault(text, 2000 + len(self.ids))

    def codec(self) -> TableCodec:
        table = {token_id: text.encode() for text, token_id in self.ids.items()}
        control = {1000 + index: name for index, name in enumerate(CONTROL)}
        return TableCodec(table, control, image_pad_id=1000 + CONTROL.index("<|image_pad|>"))


def episode(
    turns: int, *, diverging: bool, seed: int = 0
) -> tuple[list[tuple[list[int], list[int]]], TableCodec]:
    """(prompt, output) ids of each turn, and their codec."""
    say, dice = Vocabulary(), random.Random(seed)
    prompt = say("<|im_start|>", "system", "\n", "You drive.", "<|im_end|>", "\n")
    prompt += _screen(say, TOKENS_A_TURN // 2)
    pairs = []
    for _ in range(turns):
        call = [*_call(say, dice), *say("<|im_end|>")]
        words = say(*(f" {word}" for word in ANSWER.split(" ")))
        output = [*words, *say(".\n\n" if diverging else ".\n"), *call]
        shown = [*words, *say(".\n"), *call]
        pairs.append((prompt, output))
        room = TOKENS_A_TURN - len(shown) - 20
        prompt = [*prompt, *shown, *_screen(say, room)]
    return pairs, say.codec()


def _screen(say: Vocabulary, visual: int) -> list[int]:
    before = say("\n", "<|im_start|>", "user", "\n", SCREEN)
    image = say("<|vision_start|>", *["<|image_pad|>"] * visual, "<|vision_end|>")
    return [*before, *image, *say("<|im_end|>", "\n", "<|im_start|>", "assistant", "\n")]


def _call(say: Vocabulary, dice: random.Random) -> list[int]:
    x, y = (f"{dice.randrange(1000):03}" for _ in range(2))
    head = say("<tool_call>", "\n", '{"', "name", '":', ' "', "computer", '",', ' "')
    head += say("arguments", '":', ' {"', "action", '":', ' "', "click", '",', ' "')
    place = say("x", '":', " ", f"1{x}", ",", ' "', "y", '":', " ", f"1{y}", "}}")
    return [*head, *place, *say("\n", "</tool_call>")]
