"""Before a run: does a chat template keep what it rendered?

A template that rewrites earlier turns once others follow (one that strips thoughts, say) breaks
every sequence at its second turn. Invariant: a conversation passes if and only if each prompt, with
its answer, is a prefix of the next prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cua_lab.errors import LabError

Render = Callable[[Sequence[dict[str, Any]], bool], str]
"""(messages, whether the generation prompt is added) -> text."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The first turn that a later prompt renders another way."""

    turn: int
    """Counted by answers, from 0."""
    seen_in: int
    """The turn whose prompt shows it."""
    before: str
    after: str


def first_forgotten(render: Render, messages: Sequence[dict[str, Any]]) -> Forgotten | None:
    """Check every prompt of a conversation against the ones before; `None` if all are kept."""
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    prompts = [render(messages[:index], True) for index in answers]
    ends = [render(messages[: index + 1], False) for index in answers]
    for later, prompt in enumerate(prompts):
        for turn in range(later):
            for kept in (prompts[turn], ends[turn]):
                if not prompt.startswith(kept):
                    at = _first_difference(kept, prompt)
                    return Forgotten(turn, later, kept[at : at + 60], prompt[at : at + 60])
    return None


def check_template(render: Render, messages: Sequence[dict[str, Any]]) -> None:
    """Refuse a template that does not keep its prefix."""
    found = first_forgotten(render, messages)
    if found is not None:
        raise LabError(
            f"the chat template renders turn {found.turn} another way in the prompt of turn"
            f" {found.seen_in} ({found.before!r} becomes {found.after!r}), so every episode would"
            " break into pieces; use a template that keeps its prefix, or after_rewrite: split"
        )


def _first_difference(a: str, b: str) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
