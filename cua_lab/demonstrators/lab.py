"""Scripted players for the lab's templates: demonstrations to warm up on, and random play.

Every env package that a recipe trains on has this module with these two functions, and with
`best_blind` where the best fixed actions can be found by search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cua_lab.demonstrators.demos import ClickPlayer, GamePlayer, ReadingPlayer
from cua_lab.demonstrators.errands_player import ErrandsPlayer
from cua_lab.demonstrators.todo_player import TodoPlayer
from cua_lab.envs.lab.blind import best_blind
from cua_lab.envs.lab.env import best_merge_prompt, near_win_prompt
from cua_lab.errors import LabError
from cua_lab.play.scripted import random_clicks, random_keys

__all__ = ["DEMONSTRATED", "best_blind", "demonstrator", "random_player"]

if TYPE_CHECKING:
    from cua_lab.demonstrators.demos import Demonstrator as Demonstrator
    from cua_lab.demonstrators.demos import DemoRequest
    from cua_lab.play.scripted import ScriptedPolicy

CLICKED = ("targets-click", "todo-complete", "errands-open")
DEMONSTRATED = (*CLICKED, "2048-score", "2048-near-win", "2048-best-merge")


def demonstrator(asked: DemoRequest) -> Demonstrator:
    """The player whose demonstrations warm a policy up for a template with its arguments."""
    template, args, options = asked.template, asked.args, asked.options
    shared: dict[str, Any] = {"prompt": asked.prompt, "seed": asked.seed}
    size = {name: args[name] for name in ("width", "height") if name in args}
    try:
        if template == "targets-click":
            buttons = args.get("buttons")
            more = () if buttons is None else (("distractors", (buttons - 1, buttons - 1)),)
            level = args.get("level", 1)
            return ClickPlayer(
                level=level, space=asked.space, options=more, **size, **shared, **options
            )
        if template == "todo-complete":
            chores = {k: args[k] for k in ("items", "complete") if k in args}
            return TodoPlayer(space=asked.space, **size, **chores, **shared, **options)
        if template == "errands-open":
            errands = {k: args[k] for k in ("items", "still_open") if k in args}
            return ErrandsPlayer(space=asked.space, **size, **errands, **shared, **options)
        if template == "2048-score":
            task = "Play 2048 with the arrow keys. Get a high score."
            limits = {"max_keys": asked.max_keys} | dict(options)
            return GamePlayer(task=task, turns=asked.turns, **size, **shared, **limits)
        if template in ("2048-near-win", "2048-best-merge"):
            near = template == "2048-near-win"
            keys = args.get("merges", 2) if near else args.get("keys", 1)
            tile = args.get("tile", 64) if near else None
            if asked.turns < keys:
                raise LabError(
                    f"a demonstration of {template} takes one key a turn, {keys} turns;"
                    f" max_turns is {asked.turns}"
                )
            task = best_merge_prompt(keys) if tile is None else near_win_prompt(tile, keys)
            return ReadingPlayer(task=task, tile=tile, keys=keys, **size, **shared, **options)
    except TypeError as error:
        raise LabError(
            f"sft.player for {template}: {error}; see cua_lab.demonstrators.demos"
        ) from error
    raise LabError(
        f"nobody demonstrates {template!r}; there are players for {', '.join(DEMONSTRATED)}"
    )


def random_player(
    template: str, *, seed: int, keys_per_turn: float, max_keys: int, space: str
) -> ScriptedPolicy:
    """Blind play with the policy's budget: clicks anywhere, or as many random keys per turn."""
    if template in CLICKED:
        return random_clicks(seed, space)
    return random_keys(seed, keys_per_turn, at_most=max_keys)
