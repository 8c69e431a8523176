"""Start boards of 2048 on which only who reads the board wins.

A near-win board lies `merges` keys from the target: target/2, target/4, ... with the last of them
twice, and 2 to 6 small tiles in between, all in random cells. It is kept when exactly 2**merges of
the 4**merges key sequences of that length reach the target, whatever tiles come in between: each
key has one right axis, and which one differs from board to board. Two merges: random keys win 0.25
of the boards, the best fixed pair of keys 0.28.

A mid-game board comes from random play. It is kept when one axis gains at least twice what the
other one does, and holds the largest pair: random keys gain 0.53 of what is best.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from cua_lab.desktop.apps import rules2048
from cua_lab.desktop.apps.rules2048 import DIRECTIONS, SIDE, Board, Direction, Row
from cua_lab.desktop.apps.transcripts import largest_pair
from cua_lab.errors import LabError

MOST_MERGES = 3
"""A board takes 0.1, 2 and 30 ms to find with 1, 2 and 3 merges; 4 would take seconds."""
SMALL = (2, 4, 8)
CLUTTER = (2, 6)
"""Fewest and most small tiles."""
SPAWNED = (2, 4)
PLAYED = (15, 60)
"""Fewest and most random keys before a mid-game board."""


@lru_cache(maxsize=4096)
def near_win(target: int, merges: int, seed: int) -> Board:
    """The board of a seed; the members of a group share it.

    64 with two merges: 32, 16, 16 and small tiles. Raises `LabError` for a target or a number of
    merges that leaves no room for a small tile.
    """
    exponent = target.bit_length() - 1
    if target < 4 or target != 1 << exponent:
        raise LabError(f"near_win is {target}; expected a power of two from 4 on")
    most = min(exponent - 2, MOST_MERGES)
    if not 1 <= merges <= most:
        raise LabError(f"{merges} merges to {target}; expected 1 to {most}")
    rng = random.Random(f"near win {target} {merges} {seed}")
    while True:
        board = _scattered(target, merges, rng)
        if len(winning_keys(board, target, merges)) == 2**merges and _is_sure(
            board, target, merges
        ):
            return board


@lru_cache(maxsize=4096)
def mid_game(seed: int) -> Board:
    """The board of a seed, some way into a game."""
    rng = random.Random(f"mid game {seed}")
    while True:
        board = rules2048.spawn(rules2048.spawn(rules2048.EMPTY, rng), rng)
        for _ in range(rng.randint(*PLAYED)):
            pushed = rules2048.move(board, rng.choice(DIRECTIONS))[0]
            board = board if pushed == board else rules2048.spawn(pushed, rng)
        if _tells(board):
            return board


def best_gain(board: Board) -> int:
    """The points of the key that gains most."""
    return max(rules2048.move(board, key)[1] for key in DIRECTIONS)


def _tells(board: Board) -> bool:
    """Whether one axis gains twice as much as the other, with a larger tile than the other's."""
    along, across = (rules2048.move(board, key)[1] for key in ("left", "up"))
    pair = largest_pair(board)
    if pair is None or max(along, across) < 2 * min(along, across):
        return False
    row = pair[0][0] == pair[1][0]
    return (along > across) == row and not _tied(board)


def _tied(board: Board) -> bool:
    """Whether the largest tile that a key merges comes of keys along both axes."""
    largest = []
    for key in ("left", "up"):
        pushed = rules2048.move(board, key)[0]
        before = [value for line in board for value in line]
        made = [value for line in pushed for value in line if value]
        for value in before:
            if value in made:
                made.remove(value)
        largest.append(max(made, default=0))
    return largest[0] == largest[1]


def winning_keys(board: Board, target: int, keys: int) -> list[tuple[Direction, ...]]:
    """The sequences of `keys` keys that reach the target when nothing spawns in between."""
    if any(target in row for row in board):
        return [()]
    if keys == 0 or not _enough(board, target, keys):
        return []
    if keys == 1:
        return [(key,) for key in _last_keys(*_made_along(board, target))]
    return [
        (key, *rest)
        for key in DIRECTIONS
        for rest in winning_keys(rules2048.move(board, key)[0], target, keys - 1)
    ]


def _enough(board: Board, target: int, keys: int) -> bool:
    """Whether so few merges could still do it: the tiles that it takes are all there."""
    least = target >> keys
    return sum(value for row in board for value in row if value >= least) >= target


def _is_sure(board: Board, target: int, keys: int) -> bool:
    """Whether exactly 2**keys sequences win, the same ones whatever spawns."""
    certain, possible = _outcomes(board, target, keys)
    return certain == possible and len(certain) == 2**keys


Sequences: TypeAlias = frozenset[tuple[Direction, ...]]


def _outcomes(board: Board, target: int, keys: int) -> tuple[Sequences, Sequences]:
    """The sequences that win with every spawn, and those that win with some spawn."""
    if keys == 1:
        last = frozenset((key,) for key in _last_keys(*_made_along(board, target)))
        return last, last
    certain: set[tuple[Direction, ...]] = set()
    possible: set[tuple[Direction, ...]] = set()
    for key in DIRECTIONS:
        pushed = rules2048.move(board, key)[0]
        always, sometimes = (
            _outcomes(board, target, keys - 1)
            if pushed == board
            else _outcomes_after_spawn(pushed, target, keys - 1)
        )
        certain |= {(key, *rest) for rest in always}
        possible |= {(key, *rest) for rest in sometimes}
    return frozenset(certain), frozenset(possible)


def _outcomes_after_spawn(board: Board, target: int, keys: int) -> tuple[Sequences, Sequences]:
    """`_outcomes` with every, and with some, next tile."""
    if keys == 1:  # 160 boards of a start: a spawn changes one row and one column of each
        made = list(_made_after_spawn(board, target))
        every = (all(rows for rows, _ in made), all(columns for _, columns in made))
        some = (any(rows for rows, _ in made), any(columns for _, columns in made))
        always, sometimes = (frozenset((k,) for k in _last_keys(*axes)) for axes in (every, some))
        return always, sometimes
    found = [_outcomes(each, target, keys) for each in _spawned(board)]
    return (
        frozenset.intersection(*(always for always, _ in found)),
        frozenset.union(*(sometimes for _, sometimes in found)),
    )


def _last_keys(rows: bool, columns: bool) -> tuple[Direction, ...]:
    """The keys along the axes on which one key makes the target."""
    return (("left", "right") if rows else ()) + (("up", "down") if columns else ())


@lru_cache(maxsize=1 << 16)
def _made(line: Row, target: int) -> bool:
    """Whether the line holds the target once it is pushed, to either end."""
    return target in rules2048.slide(line)[0]


def _made_along(board: Board, target: int) -> tuple[bool, bool]:
    """The same of any row, and of any column."""
    rows, columns = (any(_made(line, target) for line in lines) for lines in _lines(board))
    return rows, columns


def _made_after_spawn(board: Board, target: int) -> Iterator[tuple[bool, bool]]:
    """`_made_along` of the board with each tile that may come next."""
    rows, columns = _lines(board)
    in_rows, in_columns = ([_made(line, target) for line in lines] for lines in (rows, columns))
    for r, row in enumerate(rows):
        other_rows = sum(in_rows) > in_rows[r]
        for c in range(SIDE):
            if row[c]:
                continue
            other_columns = sum(in_columns) > in_columns[c]
            for tile in SPAWNED:
                yield (
                    other_rows or _made((*row[:c], tile, *row[c + 1 :]), target),
                    other_columns or _made((*columns[c][:r], tile, *columns[c][r + 1 :]), target),
                )


def _lines(board: Board) -> tuple[Board, Board]:
    """Its rows, and its columns."""
    return board, tuple(zip(*board, strict=True))


def _spawned(board: Board) -> Iterator[Board]:
    """The board with each tile that may come next."""
    for r, row in enumerate(board):
        for c, value in enumerate(row):
            for tile in () if value else SPAWNED:
                line = (*row[:c], tile, *row[c + 1 :])
                yield (*board[:r], line, *board[r + 1 :])


def _scattered(target: int, merges: int, rng: random.Random) -> Board:
    """The big tiles and some small ones, in random cells."""
    chain = [target >> i for i in range(1, merges + 1)]
    small = [value for value in SMALL if value < chain[-1]]
    tiles = [*chain, chain[-1], *rng.choices(small, k=rng.randint(*CLUTTER))]
    cells = [0] * SIDE**2
    for place, tile in zip(rng.sample(range(SIDE**2), len(tiles)), tiles, strict=True):
        cells[place] = tile
    return tuple(tuple(cells[i : i + SIDE]) for i in range(0, SIDE**2, SIDE))
