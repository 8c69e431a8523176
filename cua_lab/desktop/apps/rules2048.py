"""The rules of 2048 as pure functions over boards.

A board is four rows of four ints: 0 for an empty cell, else a power of two from 2 on. Invariants:
a move keeps the sum of the tiles, a tile merges at most once a move, a spawn fills one empty cell.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

from cua_lab.errors import LabError

SIDE = 4
Row: TypeAlias = tuple[int, ...]
Board: TypeAlias = tuple[Row, ...]
Direction: TypeAlias = Literal["left", "right", "up", "down"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
EMPTY: Board = ((0,) * SIDE,) * SIDE


def slide(row: Sequence[int]) -> tuple[Row, int]:
    """A row pushed to the left, and the points of its merges."""
    return _slid(tuple(row))


@lru_cache(maxsize=1 << 16)  # few rows come up in play, each of them all the time
def _slid(row: Row) -> tuple[Row, int]:
    tiles = [value for value in row if value]
    pushed: list[int] = []
    gained = 0
    while tiles:
        value = tiles.pop(0)
        if tiles and tiles[0] == value:
            value += tiles.pop(0)
            gained += value
        pushed.append(value)
    return tuple(pushed) + (0,) * (len(row) - len(pushed)), gained


def move(board: Board, direction: Direction) -> tuple[Board, int]:
    """The board pushed in a direction, before the spawn, and the points gained."""
    turned = _transpose(board) if direction in ("up", "down") else board
    flip = direction in ("right", "down")
    rows, points = zip(*(slide(row[::-1] if flip else row) for row in turned), strict=True)
    pushed = tuple(row[::-1] for row in rows) if flip else rows
    return (_transpose(pushed) if direction in ("up", "down") else pushed), sum(points)


def spawn(board: Board, rng: random.Random) -> Board:
    """A 2 (nine times of ten) or a 4 in a random empty cell."""
    cells = [(r, c) for r, row in enumerate(board) for c, value in enumerate(row) if not value]
    row, column = rng.choice(cells)
    rows = [list(line) for line in board]
    rows[row][column] = 2 if rng.random() < 0.9 else 4
    return tuple(tuple(line) for line in rows)


def over(board: Board) -> bool:
    """Whether no move changes anything."""
    if any(0 in row for row in board):
        return False
    lines = (*board, *_transpose(board))
    return not any(a == b for line in lines for a, b in pairwise(line))


def checked(board: Sequence[Sequence[int]]) -> Board:
    """A board from anybody, or a `LabError` that names the bad cell."""
    rows = tuple(tuple(row) for row in board)
    if len(rows) != SIDE or any(len(row) != SIDE for row in rows):
        raise LabError(f"a 2048 board has {SIDE} rows of {SIDE}; got {[list(r) for r in rows]}")
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            if value and (value < 2 or value & (value - 1)):
                raise LabError(
                    f"board[{r}][{c}] is {value}; expected 0 or a power of two from 2 on"
                )
    return rows


def _transpose(board: Board) -> Board:
    return tuple(zip(*board, strict=True))
