"""How episodes of the to-do list begin, and what they ask for: the same in every env.

Invariant: a start is a function of its arguments alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cua_lab.desktop.apps import Todo
from cua_lab.desktop.apps.todo import CHORES
from cua_lab.errors import LabError


def list_to_complete(seed: int, items: int, complete: int) -> tuple[list[str], list[str]]:
    """The texts of a list, and those that are to be checked off, in the list's order."""
    if not 1 <= complete <= items:
        raise LabError(f"complete must be 1 to {items}, the number of items; got {complete}")
    texts = [item["text"] for item in Todo(count=items, seed=seed).state()["items"]]
    chosen = sorted(random.Random(seed).sample(range(items), complete))
    return texts, [texts[i] for i in chosen]


def complete_prompt(wanted: Sequence[str]) -> str:
    """What the player of a list to complete is told."""
    return f"Check off: {', '.join(wanted)}. Leave the rest."


def text_to_create(seed: int, texts: Sequence[str], given: str | None = None) -> str:
    """What to add to a list of these texts: what was given, or a chore that is not on it."""
    unused = [chore for chore in CHORES if chore not in texts]
    text = random.Random(seed).choice(unused) if given is None else given
    if not text.strip() or text != text.strip():
        raise LabError(f"text must be neither blank nor padded; got {text!r}")
    return text
