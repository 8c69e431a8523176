"""The best that a player with closed eyes can do: one sequence of actions for all starts.

    candidates ──▶ played on the apps and graded ──▶ the best ones on more seeds ──▶ Blind

A template whose blind score is near its best score rewards no looking. The search plays the app
itself, without a screen, so hundreds of starts take seconds. Invariant: a candidate knows the
template and its arguments, and nothing of an episode: neither its screen nor the words of its task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from cua_lab.desktop import keysyms
from cua_lab.desktop.app import LEFT
from cua_lab.desktop.apps import Errands, Game2048, Targets, Todo, boards2048
from cua_lab.desktop.apps.rules2048 import DIRECTIONS
from cua_lab.desktop.apps.todo import CHORES
from cua_lab.envs.lab import grading
from cua_lab.envs.lab.starts import list_to_complete, text_to_create
from cua_lab.errors import LabError

SEEDS = 256
"""Starts that the reported score is the mean of."""
HALVINGS = (16, 64)
"""Starts on which all candidates are played, then the best eighth of them."""
POINT_STEP = 4
"""Pixels between the clicks that are tried, on a screen 128 pixels wide."""
LONGEST_CYCLE = 4
"""Keys after which a long key list begins again."""
Score = Callable[[Any, int], float]
"""(candidate, seed) -> reward."""


@dataclass(frozen=True, slots=True)
class Blind:
    """The best sequence that was found."""

    actions: tuple[dict[str, Any], ...]
    """One `computer` call a turn, coordinates in 0-1000."""
    score: float
    """Mean reward over `seeds` starts."""
    seeds: int


def best_blind(
    template: str, args: Mapping[str, Any], *, max_keys: int, turns: int, seeds: int = SEEDS
) -> Blind:
    """Search for a template with these arguments, `turns` calls of at most `max_keys` keys."""
    if template.startswith("2048"):
        candidates, score = _games(template, args, max_keys * turns)
        best, value = search(candidates, score, seeds)
        return Blind(_in_turns(best, max_keys, turns), value, seeds)
    if template in CLICKS:
        size = (args.get("width", 128), args.get("height", 128))
        (x, y), value = search(_points(size), CLICKS[template](args), seeds)
        point = {"x": round(x * 1000 / size[0]), "y": round(y * 1000 / size[1])}
        return Blind(({"action": "click", **point},), value, seeds)
    if template == "todo-create":
        text, value = search(CHORES, _created(args), seeds)
        return Blind(({"action": "type", "text": f"{text}\n"},), value, seeds)
    raise LabError(f"there is no blind search for {template!r}")


def search(candidates: Iterable[Any], score: Score, seeds: int) -> tuple[Any, float]:
    """The best candidate on `seeds` starts, of those that were good on fewer; ties by order."""
    left: Sequence[Any] = list(candidates)
    for count in HALVINGS:
        if len(left) * count <= seeds * 8 or count >= seeds:
            continue
        means = [_mean(score, candidate, count) for candidate in left]
        order = sorted(range(len(left)), key=lambda i: -means[i])
        left = [left[i] for i in order[: max(8, len(left) // 8)]]
    means = [_mean(score, candidate, seeds) for candidate in left]
    best = max(range(len(left)), key=lambda i: means[i])
    return left[best], means[best]


def _mean(score: Score, candidate: Any, seeds: int) -> float:
    return sum(score(candidate, seed) for seed in range(seeds)) / seeds


def _games(template: str, args: Mapping[str, Any], most: int) -> tuple[list[Any], Score]:
    """Key lists of 2048, and what they score."""
    size = (args.get("width", 128), args.get("height", 128))
    if template == "2048-near-win":
        tile, merges = args.get("tile", 64), args.get("merges", 2)

        def near(keys: Sequence[Any], seed: int) -> float:
            app = Game2048(*size, near_win=tile, near_win_merges=merges, seed=seed)
            return grading.tile_reached_within(_pushed(app, keys), tile, merges).reward

        return list(product(DIRECTIONS, repeat=merges)), near

    if template == "2048-best-merge":

        def merged(keys: Sequence[Any], seed: int) -> float:
            app = Game2048(*size, start=boards2048.mid_game(seed), seed=seed)
            return grading.merged_best(_pushed(app, keys), args.get("keys", 1)).reward

        return list(product(DIRECTIONS, repeat=min(args.get("keys", 1), LONGEST_CYCLE))), merged

    def far(keys: Sequence[Any], seed: int) -> float:
        state = _pushed(Game2048(*size, seed=seed), keys)
        if template == "2048-score":
            return grading.score_linear(state, args.get("target", 1000)).reward
        return grading.tile_reached(state, args.get("tile", 64)).reward

    return [tuple(cycle * most)[:most] for cycle in _cycles()], far


def _cycles() -> list[tuple[Any, ...]]:
    """Cycles of keys, one of all that are the same but for turning and mirroring the board."""
    found: dict[tuple[int, ...], tuple[Any, ...]] = {}
    for length in range(1, LONGEST_CYCLE + 1):
        for cycle in product(DIRECTIONS, repeat=length):
            found.setdefault(min(_turned(cycle)), cycle)
    return list(found.values())


def _turned(cycle: Sequence[str]) -> list[tuple[int, ...]]:
    """The eight views of a cycle; left, right, up, down are 0 to 3."""
    ids = [DIRECTIONS.index(key) for key in cycle]
    views = []
    for swap, across, along in product((0, 1), repeat=3):
        flip = [i ^ (across if i < 2 else along) for i in ids]
        views.append(tuple(i ^ 2 if swap else i for i in flip))
    return views


def _pushed(app: Game2048, keys: Sequence[Any]) -> grading.State:
    for key in keys:
        app.push(key)
    return app.state()


def _in_turns(keys: Sequence[str], max_keys: int, turns: int) -> tuple[dict[str, Any], ...]:
    """Key lists of one length but for the last: as many turns as there are, or a key each."""
    each = min(max_keys, -(-len(keys) // turns))
    parts = [list(keys[i : i + each]) for i in range(0, len(keys), each)]
    return tuple({"action": "press", "keys": part} for part in parts)


def _points(size: tuple[int, int]) -> list[tuple[int, int]]:
    step = max(1, POINT_STEP * min(size) // 128)
    return [
        (x, y) for y in range(step // 2, size[1], step) for x in range(step // 2, size[0], step)
    ]


def _clicked(args: Mapping[str, Any]) -> Score:
    buttons = args.get("buttons")
    app = Targets(
        args.get("level", 1),
        width=args.get("width", 128),
        height=args.get("height", 128),
        distractors=None if buttons is None else (buttons - 1, buttons - 1),
    )
    boxes: dict[int, Any] = {}

    def score(point: tuple[int, int], seed: int) -> float:
        if seed not in boxes:
            app.reset(seed)
            boxes[seed] = app.target.box
        return float(boxes[seed].contains(*point))

    return score


def _checked(args: Mapping[str, Any]) -> Score:
    size = (args.get("width", 128), args.get("height", 128))

    def score(point: tuple[int, int], seed: int) -> float:
        texts, wanted = list_to_complete(seed, args.get("items", 3), args.get("complete", 1))
        app = Todo(*size, items=texts, seed=seed)
        before = app.state()["items"]
        for buttons in (LEFT, 0):
            app.pointer(*point, buttons)
        return grading.todos_completed(app.state(), before, wanted).reward

    return score


def _struck(args: Mapping[str, Any]) -> Score:
    """Errands, graded as carelessly as the template does: "Delete all" is always in one place."""
    size = (args.get("width", 128), args.get("height", 128))
    more = {"count": args.get("items", 5), "still_open": args.get("still_open", 3)}

    def score(point: tuple[int, int], seed: int) -> float:
        app = Errands(*size, **more, seed=seed)
        before = app.state()
        for buttons in (LEFT, 0):
            app.pointer(*point, buttons)
        return grading.fewer_open(app.state(), before).reward

    return score


def _created(args: Mapping[str, Any]) -> Score:
    def score(text: str, seed: int) -> float:
        app = Todo(count=args.get("items", 2), seed=seed)
        before = app.state()["items"]
        wanted = text_to_create(seed, [item["text"] for item in before], args.get("text"))
        for character in f"{text}\n":
            app.key(keysyms.RETURN if character == "\n" else ord(character), True)
        return grading.todo_created(app.state(), before, wanted).reward

    return score


CLICKS: dict[str, Callable[[Mapping[str, Any]], Score]] = {
    "targets-click": _clicked,
    "todo-complete": _checked,
    "errands-open": _struck,
}
"""Templates of one click, and what one scores."""
