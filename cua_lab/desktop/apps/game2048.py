"""2048: arrow keys push the tiles, equal ones merge, the score is on the screen.

State: the board, the score, the number of moves that changed the board, the number of arrow keys
and the first boards that they led to. Everything random (the start, the spawns) comes from
generators seeded by `reset`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from PIL import Image

from cua_lab.desktop import keysyms
from cua_lab.desktop.apps import boards2048, paint, rules2048
from cua_lab.desktop.apps.base import Painted
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.screen_context import Element
from cua_lab.errors import LabError

KEYS: dict[int, rules2048.Direction] = {
    keysyms.LEFT: "left",
    keysyms.RIGHT: "right",
    keysyms.UP: "up",
    keysyms.DOWN: "down",
}
BACKGROUND: paint.Colour = (250, 248, 239)
BOARD: paint.Colour = (187, 173, 160)
EMPTY: paint.Colour = (206, 193, 180)
DARK: paint.Colour = (112, 102, 92)
LIGHT: paint.Colour = (252, 250, 246)
TILES: dict[int, paint.Colour] = {
    2: (240, 230, 219),
    4: (238, 220, 186),
    8: (243, 177, 121),
    16: (246, 146, 92),
    32: (246, 116, 86),
    64: (240, 78, 48),
    128: (234, 200, 96),
    256: (226, 186, 56),
    512: (120, 182, 82),
    1024: (52, 152, 130),
    2048: (46, 104, 186),
}
HIGHEST: paint.Colour = (60, 48, 88)
REMEMBERED = 32
"""Boards that a state lists, the start among them: what a policy said of a screen is compared with
them."""


class Game2048(Painted):
    """The game. `start` is a board to begin with; `near_win` a tile to begin close to."""

    def __init__(
        self,
        width: int = 128,
        height: int = 128,
        *,
        start: Sequence[Sequence[int]] | None = None,
        near_win: int | None = None,
        near_win_merges: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(width, height)
        if start is not None and near_win is not None:
            raise LabError("both `start` and `near_win` were given; expected one of them")
        self._start = None if start is None else rules2048.checked(start)
        self._near_win, self._merges = near_win, near_win_merges
        self.layout = _Layout.of(width, height)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """A new game: two tiles, or the start board."""
        self._seed, self._rng = seed, random.Random(seed)
        self.score = self.moves = self.keys = 0
        if self._start is not None:
            self.board = self._start
        elif self._near_win is not None:
            self.board = boards2048.near_win(self._near_win, self._merges, seed)
        else:
            self.board = rules2048.spawn(rules2048.spawn(rules2048.EMPTY, self._rng), self._rng)
        self.boards: list[rules2048.Board] = [self.board]
        self._touch()

    def key(self, keysym: int, down: bool) -> None:
        """An arrow key going down is a move; auto-repeat (down again) is another one."""
        direction = KEYS.get(keysyms.fold_keypad(keysym)) if down else None
        if direction is not None:
            self.push(direction)

    def push(self, direction: rules2048.Direction) -> bool:
        """Push the tiles; False when that changes nothing (and then nothing spawns)."""
        board, gained = rules2048.move(self.board, direction)
        changed = board != self.board
        if changed:
            self.board = rules2048.spawn(board, self._rng)
            self.score += gained
            self.moves += 1
            self._touch()
        self.keys += 1
        if len(self.boards) < REMEMBERED:
            self.boards.append(self.board)
        return changed

    def element_at(self, at: tuple[int, int]) -> Element | None:
        """Nothing reacts to a click."""
        return None

    def focused_element(self) -> Element | None:
        """The game as a whole has the keys."""
        return None

    def pointer(self, x: int, y: int, buttons: int) -> None:
        """The game is played with keys."""

    def state(self) -> dict[str, Any]:
        """`board`, `score`, `max_tile`, `moves` (that changed something), `keys`, `boards` (before
        each of the first keys, and after), `over`, `seed`."""
        return {
            "app": "game2048",
            "seed": self._seed,
            "board": [list(row) for row in self.board],
            "score": self.score,
            "max_tile": max(max(row) for row in self.board),
            "moves": self.moves,
            "keys": self.keys,
            "boards": [[list(row) for row in board] for board in self.boards],
            "over": rules2048.over(self.board),
        }

    def _paint(self) -> Image.Image:
        layout = self.layout
        image = _background(*self.size).copy()
        for r, row in enumerate(self.board):
            for c, value in enumerate(row):
                if value:
                    box = layout.cell(r, c)
                    image.paste(_tile(value, layout.side, layout.radius), (box.left, box.top))
        text = str(self.score)
        size = paint.fitted(text, layout.score.width - layout.gap * 2, layout.text)
        paint.centred(image, paint.label_mask(text, size), layout.score, LIGHT)
        if rules2048.over(self.board):
            _stamp_over(image, layout)
        return image


class _Layout:
    """Where things are, in pixels; a header with the score above a square board."""

    def __init__(self, width: int, height: int) -> None:
        header = max(16, round(height * 0.14))
        pad = max(2, round(min(width, height) * 0.02))
        room = min(width - 2 * pad, height - header - pad)
        self.gap = max(2, round(room * 0.024))
        self.side = (room - 5 * self.gap) // 4
        self.radius = max(2, self.side // 9)
        board = 4 * self.side + 5 * self.gap
        self.board = Box.at((width - board) // 2, header, board, board)
        self.header = Box(self.board.left, 0, self.board.right, header)
        inset = max(2, round(header * 0.14))
        self.score = Box(
            self.header.right - round(board * 0.42), inset, self.header.right, header - inset
        )
        self.text = round(self.score.height * 0.8)

    @staticmethod
    @lru_cache(maxsize=16)
    def of(width: int, height: int) -> _Layout:
        return _Layout(width, height)

    def cell(self, row: int, column: int) -> Box:
        step = self.side + self.gap
        left = self.board.left + self.gap + column * step
        return Box.at(left, self.board.top + self.gap + row * step, self.side, self.side)


@lru_cache(maxsize=8)
def _background(width: int, height: int) -> Image.Image:
    """Everything that never changes: title, score box, empty board."""
    layout = _Layout.of(width, height)
    image = Image.new("RGB", (width, height), BACKGROUND)
    paint.fill(image, layout.board, BOARD, layout.radius + 1)
    for r in range(rules2048.SIDE):
        for c in range(rules2048.SIDE):
            paint.fill(image, layout.cell(r, c), EMPTY, layout.radius)
    paint.fill(image, layout.score, BOARD, layout.radius)
    room = Box(layout.header.left, 0, layout.score.left - layout.gap, layout.header.bottom)
    size = paint.fitted("SCORE", room.width - layout.gap, round(layout.text * 0.95))
    mask = paint.label_mask("SCORE", size)
    left = room.right - layout.gap - mask.width
    image.paste(DARK, (left, (room.height - mask.height) // 2), mask)
    return image


@lru_cache(maxsize=256)
def _tile(value: int, side: int, radius: int) -> Image.Image:
    """A tile on the colour of the board."""
    image = Image.new("RGB", (side, side), BOARD)
    whole = Box(0, 0, side, side)
    paint.fill(image, whole, TILES.get(value, HIGHEST), radius)
    text = str(value)
    size = paint.fitted(text, side - max(2, side // 12), round(side * 0.62))
    paint.centred(image, paint.label_mask(text, size), whole, DARK if value <= 4 else LIGHT)
    return image


def _stamp_over(image: Image.Image, layout: _Layout) -> None:
    """Pale tiles, and a band that says that the game is over."""
    board = layout.board
    image.paste(BACKGROUND, (board.left, board.top), _veil(board.width, board.height))
    height = round(board.height * 0.24)
    band = Box.at(board.left, board.center[1] - height // 2, board.width, height)
    paint.fill(image, band, DARK, layout.radius)
    size = paint.fitted("Game over", board.width - 6 * layout.gap, round(height * 0.66))
    paint.centred(image, paint.label_mask("Game over", size), band, LIGHT)


@lru_cache(maxsize=8)
def _veil(width: int, height: int) -> Image.Image:
    return Image.new("L", (width, height), 110)
