"""A quick look at a policy while it warms up: its first answers to a player's own tasks.

No episode is played and no reward given; answers are sampled in one batch and read as calls. The
look that matters is the second one, with the screenshots dealt to other tasks: a policy that sees
falls to the rate of blind clicks (.06), one that learnt positions by heart does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import View
from cua_lab.computer.schema import CallError, parse_call
from cua_lab.demonstrators.demos import ClickPlayer, Demo, Demonstrator
from cua_lab.policy.plain_sampling import sample
from cua_lab.training.warmup import make_prompt

if TYPE_CHECKING:
    from PIL import Image

    from cua_lab.policy.policy import Policy

Screens = Literal["own", "shuffled", "blank"]
CALL = re.compile(
    r'<tool_call>\n\{"name": "computer", "arguments": (\{.*\})\}\n</tool_call><\|im_end\|>'
)


@dataclass(frozen=True, slots=True)
class Probe:
    """Rates over sampled answers."""

    answers: int
    valid: float
    """Share that is one canonical call with acceptable arguments."""
    inside: float | None
    """Share of answers that click inside the target; `None` for players that do not click."""
    keys: float | None
    """Mean keys of the valid presses; `None` where there are none."""


def probe(
    policy: Policy,
    player: Demonstrator,
    *,
    count: int = 128,
    first: int = 10**6,
    screens: Screens = "own",
    max_tokens: int = 64,
    max_keys: int = 20,
    temperature: float = 1.0,
    seed: int = 0,
) -> Probe:
    """Sample answers to demos `first`.. (far from those trained on) and read them."""
    demos = [player(first + i) for i in range(count)]
    prompts = [make_prompt(policy, demo) for demo in _with_screens(demos, screens)]
    answers = sample(policy, prompts, max_tokens=max_tokens, seed=seed, temperature=temperature)
    calls = [read_call(policy.tokenizer.decode(ids), max_keys=max_keys) for ids in answers]
    pressed = [len(call["keys"]) for call in calls if call and call["action"] == "press"]
    return Probe(
        answers=count,
        valid=sum(call is not None for call in calls) / count,
        inside=_inside(player, first, calls),
        keys=sum(pressed) / len(pressed) if pressed else None,
    )


def read_call(text: str, *, max_keys: int = 20) -> dict[str, Any] | None:
    """The arguments of an answer that is one canonical, acceptable call; else None."""
    match = CALL.fullmatch(text)
    if match is None:
        return None
    config = ToolConfig(coordinate_space="0-1000", max_keys_per_call=max_keys)
    try:
        arguments: dict[str, Any] = json.loads(match.group(1))
        parse_call(arguments, View((128, 128), space="0-1000"), config)
    except (json.JSONDecodeError, CallError):
        return None
    return arguments


def _inside(
    player: Demonstrator, first: int, calls: Sequence[dict[str, Any] | None]
) -> float | None:
    if not isinstance(player, ClickPlayer):
        return None
    hits = 0
    for index, call in enumerate(calls):
        if call is not None and call["action"] == "click":
            box = player.app_of(first + index).target.box
            hits += box.contains(*player.view.to_screen(call["x"], call["y"]))
    return hits / len(calls)


def _with_screens(demos: Sequence[Demo], screens: Screens) -> list[Demo]:
    if screens == "own":
        return list(demos)
    if screens == "blank":
        return [replace(demo, images=tuple(map(_blank, demo.images))) for demo in demos]
    others = [*demos[1:], demos[0]]
    return [replace(demo, images=other.images) for demo, other in zip(demos, others, strict=True)]


def _blank(image: Image.Image) -> Image.Image:
    from PIL import Image

    return Image.new("RGB", image.size, "white")
