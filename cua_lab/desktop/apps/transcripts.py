"""What there is to read on a screen, in the words of a thought.

A transcript has one letter or digit for each cell of the screen, in reading order; other characters
only separate. A thought is a transcript, and behind it what follows from it. Invariant: both are
functions of the app's state, so that what a policy says of a screen can be marked cell by cell.

2048: `0000/2302/0400/5044 43 44 row`. Each digit is a power of two (5 is 32), 0 an empty cell;
then come the two cells that one key merges, each as its row and column, and the line that they
share. In `lines` there stand eight digits instead: the largest pair of each row and column.

Targets: `00r0/0rr0/b000/0000 13`. The screen in 4 x 4 cells, each with the letter of the colour
that covers half of it or has its middle there, 0 for none; then the cell with the middle of the
target.

To-do: `1 Buy milk 2 Call mum 3 Pay rent 2`. The texts by row, then the row that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

from cua_lab.desktop.apps.rules2048 import SIDE, Board
from cua_lab.desktop.apps.targets import Thing
from cua_lab.desktop.geometry import Box

DIGITS = "0123456789abcdefgh"
NOTHING = "none"
GRID = 4
"""Cells of a screen each way, where things lie anywhere."""
LETTERS = {
    "red": "r",
    "grey": "g",
    "blue": "b",
    "green": "n",
    "yellow": "y",
    "purple": "p",
    "orange": "o",
    "pink": "k",
    "black": "x",
}
Cell = tuple[int, int]


def board_transcript(board: Board) -> str:
    """Four rows of digits: 0 for an empty cell, else the exponent of its power of two."""
    return "/".join("".join(map(_digit, row)) for row in board)


def board_thought(board: Board) -> str:
    """The transcript, and the pair of largest tiles that one key merges."""
    said = board_transcript(board)
    pair = largest_pair(board)
    if pair is None:
        return f"{said} {NOTHING}"
    cells = " ".join(f"{r + 1}{c + 1}" for r, c in pair)
    return f"{said} {cells} {_line_of(pair)}"


def lines_thought(board: Board) -> str:
    """The transcript; the largest pair of each row, then of each column, 0 for none; and the line
    of the largest of all. Each digit takes one look at four others, where `board_thought` finds its
    pair in one look at all sixteen."""
    rows, columns = (
        "".join(_digit(_largest_in(line)) for line in lines)
        for lines in (board, zip(*board, strict=True))
    )
    pair = largest_pair(board)
    named = NOTHING if pair is None else _line_of(pair)
    return f"{board_transcript(board)} {rows} {columns} {named}"


BOARD_THOUGHTS: dict[str, Callable[[Board], str]] = {
    "transcript": board_transcript,
    "pair": board_thought,
    "lines": lines_thought,
}
"""What a player of 2048 may say, by the name that a recipe gives it."""


def largest_pair(board: Board) -> tuple[Cell, Cell] | None:
    """The largest two equal tiles with nothing between them in a row or a column; of several the
    first in reading order, rows before columns."""
    pairs = [
        (board[r][c], (r, c), other)
        for down, (r, c) in product((False, True), product(range(SIDE), repeat=2))
        if board[r][c] and (other := _next(board, r, c, down)) is not None
        if board[other[0]][other[1]] == board[r][c]
    ]
    if not pairs:
        return None
    best = max(pairs, key=lambda pair: pair[0])  # the first of equals
    return best[1], best[2]


def _next(board: Board, row: int, column: int, down: bool) -> Cell | None:
    """The next tile along the row, or down the column."""
    for step in range(1, SIDE - (row if down else column)):
        cell = (row + step, column) if down else (row, column + step)
        if board[cell[0]][cell[1]]:
            return cell
    return None


def _line_of(pair: tuple[Cell, Cell]) -> str:
    """What a thought calls the line that two cells share."""
    return "row" if pair[0][0] == pair[1][0] else "column"


def _digit(value: int) -> str:
    """A tile in a transcript."""
    return DIGITS[value.bit_length() - 1 if value else 0]


def _largest_in(line: Sequence[int]) -> int:
    """The largest tile of a row or column that a key merges with its neighbour; 0 for none."""
    tiles = [value for value in line if value]
    return max((one for one, other in pairwise(tiles) if one == other), default=0)


def keys_along(thought: str) -> tuple[str, ...]:
    """The two keys that push along the line that a thought names; all four where it names none."""
    if thought.endswith(" row"):
        return ("left", "right")
    return ("up", "down") if thought.endswith(" column") else ("left", "right", "up", "down")


def things_transcript(things: Sequence[Thing], size: tuple[int, int]) -> str:
    """Four rows of letters: the colour of the thing in each cell of the screen."""
    return "/".join(
        "".join(_letter(things, _cell_box(row, column, size)) for column in range(GRID))
        for row in range(GRID)
    )


def things_thought(things: Sequence[Thing], target: Thing, size: tuple[int, int]) -> str:
    """The transcript, and the cell with the middle of the target."""
    x, y = target.box.center
    row, column = y * GRID // size[1], x * GRID // size[0]
    return f"{things_transcript(things, size)} {row + 1}{column + 1}"


def list_transcript(texts: Sequence[str]) -> str:
    """The texts of a list with the numbers of their rows."""
    return " ".join(f"{row} {text}" for row, text in enumerate(texts, 1))


def list_thought(texts: Sequence[str], wanted: str) -> str:
    """The transcript, and the row of one of its texts."""
    return f"{list_transcript(texts)} {texts.index(wanted) + 1}"


def _letter(things: Sequence[Thing], cell: Box) -> str:
    """Of the thing that covers most of the cell, if that is half of it or the thing's middle."""
    covered = [
        (_shared(thing.box, cell), LETTERS[thing.colour])
        for thing in things
        if cell.contains(*thing.box.center)
        or 2 * _shared(thing.box, cell) >= cell.width * cell.height
    ]
    return max(covered, default=(0, "0"))[1]


def _cell_box(row: int, column: int, size: tuple[int, int]) -> Box:
    xs = [i * size[0] // GRID for i in (column, column + 1)]
    ys = [i * size[1] // GRID for i in (row, row + 1)]
    return Box(xs[0], ys[0], xs[1], ys[1])


def _shared(one: Box, other: Box) -> int:
    """Pixels that two boxes have in common."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    return max(0, width) * max(0, height)
