"""Experts for the lab's templates: who knows what is on the screen plays as well as one can.

An expert is made for one start state, as the app draws it, and says calls of the `computer` tool:
its episodes go through the same agent, tool, desktop and grader as the policy's and tell what a
policy could reach at most. Invariant: it knows the start and its own keys, not what will spawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cua_lab.computer.coordinates import View
from cua_lab.desktop.apps import Errands, Game2048, Targets, Todo, boards2048, rules2048
from cua_lab.desktop.apps.rules2048 import DIRECTIONS, Board
from cua_lab.desktop.geometry import Box
from cua_lab.envs.lab.starts import list_to_complete
from cua_lab.errors import LabError
from cua_lab.play.scripted import ScriptedPolicy, in_turn

CORNER = ("left", "down", "up", "right")
"""What a greedy player presses where keys gain the same: it keeps its large tiles in a corner."""


def expert(template: str, args: Mapping[str, Any], *, max_keys: int = 1) -> ScriptedPolicy:
    """The expert for one start state; `args` are all of the template's, the seed among them.

    Coordinates are in 0-1000. Raises `LabError` for a template that nobody plays.
    """
    size, seed = (args["width"], args["height"]), args["seed"]
    if template == "targets-click":
        more = {} if args.get("buttons") is None else {"distractors": (args["buttons"] - 1,) * 2}
        return _clicks(
            [Targets(args["level"], width=size[0], height=size[1], seed=seed, **more).target.box],
            size,
        )
    if template == "todo-complete":
        texts, wanted = list_to_complete(seed, args["items"], args["complete"])
        app = Todo(*size, items=texts, seed=seed)
        return _clicks([app.boxes[f"check:{texts.index(text)}"] for text in wanted], size)
    if template == "errands-open":
        errands = Errands(*size, count=args["items"], still_open=args["still_open"], seed=seed)
        return _clicks([errands.boxes[str(index)] for index in errands.open], size)
    if template == "2048-near-win":
        tile, keys = args["tile"], args["merges"]
        return _presses([[key] for key in boards2048.winning_keys(
            boards2048.near_win(tile, keys, seed), tile, keys
        )[0]])  # fmt: skip
    if template == "2048-best-merge":
        game = Game2048(*size, start=boards2048.mid_game(seed), seed=seed)
        return _presses(_greedy(game, args["keys"], 1))
    if template == "2048-score":
        return _presses(_greedy(Game2048(*size, seed=seed), args["turns"] * max_keys, max_keys))
    raise LabError(f"there is no expert for {template!r}")


def _clicks(boxes: Sequence[Box], size: tuple[int, int]) -> ScriptedPolicy:
    """A click on the middle of each box, one a turn."""
    view = View(size, space="0-1000")
    points = [view.from_screen(*box.center) for box in boxes]
    return in_turn([{"action": "click", "x": x, "y": y} for x, y in points])


def _presses(turns: Sequence[Sequence[str]]) -> ScriptedPolicy:
    return in_turn([{"action": "press", "keys": list(keys)} for keys in turns])


def _greedy(game: Game2048, count: int, a_turn: int) -> list[list[str]]:
    """The keys that gain most at once, each chosen on the board that the keys before it led to."""
    keys = []
    for _ in range(count):
        keys.append(_best_key(game.board))
        game.push(keys[-1])  # type: ignore[arg-type]
    return [keys[i : i + a_turn] for i in range(0, count, a_turn)]


def _best_key(board: Board) -> str:
    moves = {key: rules2048.move(board, key) for key in DIRECTIONS}
    counts = [key for key in CORNER if moves[key][0] != board]  # type: ignore[index]
    return max(counts or CORNER, key=lambda key: moves[key][1])
