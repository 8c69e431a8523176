"""2048: the rules, the seeds, and a board that can be read."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.desktop import keysyms
from cua_lab.desktop.apps import Game2048
from cua_lab.desktop.apps import rules2048 as rules
from cua_lab.errors import LabError

tiles = st.sampled_from([0, 0, 2, 2, 4, 8, 1024])
rows = st.tuples(*[tiles] * 4)
boards = st.tuples(*[rows] * 4)
directions = st.sampled_from(rules.DIRECTIONS)


@pytest.mark.parametrize(
    ("row", "pushed", "points"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((2, 2, 4, 0), (4, 4, 0, 0), 4),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((2, 0, 0, 2), (4, 0, 0, 0), 4),
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),
        ((0, 0, 0, 0), (0, 0, 0, 0), 0),
        ((2, 4, 8, 16), (2, 4, 8, 16), 0),
        ((0, 1024, 0, 1024), (2048, 0, 0, 0), 2048),
    ],
)
def test_a_row_slides_and_a_tile_merges_once(row, pushed, points):
    assert rules.slide(row) == (pushed, points)


@given(rows)
def test_sliding_keeps_the_sum_and_leaves_no_gap(row):
    pushed, points = rules.slide(row)
    assert sum(pushed) == sum(row)
    filled = [value for value in pushed if value]
    assert pushed[: len(filled)] == tuple(filled)
    merged = len([v for v in row if v]) - len(filled)
    assert (points == 0) == (merged == 0)
    assert all(value & (value - 1) == 0 for value in filled)


@given(boards, directions)
def test_opposite_pushes_mirror_each_other(board, direction):
    mirrored = tuple(row[::-1] for row in board)
    twin = {"left": "right", "right": "left"}.get(direction, direction)
    pushed, points = rules.move(board, direction)
    other, same = rules.move(mirrored, twin)
    assert (tuple(row[::-1] for row in other), same) == (pushed, points)


@given(boards, directions, st.integers())
def test_a_move_keeps_the_sum_and_a_spawn_fills_one_cell(board, direction, seed):
    pushed, _ = rules.move(board, direction)
    assert sum(map(sum, pushed)) == sum(map(sum, board))
    if any(0 in row for row in pushed):
        spawned = rules.spawn(pushed, random.Random(seed))
        changed = [
            (a, b)
            for r, s in zip(pushed, spawned, strict=True)
            for a, b in zip(r, s, strict=True)
            if a != b
        ]
        assert len(changed) == 1
        assert changed[0][0] == 0
        assert changed[0][1] in (2, 4)


@given(boards)
def test_the_game_is_over_when_no_direction_changes_the_board(board):
    stuck = all(rules.move(board, direction)[0] == board for direction in rules.DIRECTIONS)
    empty = not any(map(any, board))
    assert rules.over(board) == (stuck and not empty)


def test_four_is_spawned_one_time_in_ten():
    rng = random.Random(0)
    fours = sum(max(map(max, rules.spawn(rules.EMPTY, rng))) == 4 for _ in range(5000))
    assert 400 < fours < 600


def test_a_seed_makes_the_game_and_another_seed_another_one():
    def played(seed):
        game = Game2048(seed=seed)
        for i in range(60):
            game.push(rules.DIRECTIONS[i % 4])
        return game.state(), game.draw().tobytes()

    assert played(7) == played(7)
    assert played(7) != played(8)


def test_a_reset_forgets_everything():
    game = Game2048(seed=1)
    first = game.state(), game.draw().tobytes()
    for direction in rules.DIRECTIONS * 5:
        game.push(direction)
    game.reset(1)
    assert (game.state(), game.draw().tobytes()) == first


def test_arrows_move_on_the_way_down_only_and_other_keys_do_nothing():
    game = Game2048(start=[[2, 2, 0, 0], [0] * 4, [0] * 4, [0] * 4])
    game.key(keysyms.LEFT, False)
    game.key(ord("a"), True)
    game.pointer(10, 10, 1)
    assert game.moves == 0
    game.key(keysyms.LEFT, True)
    state = game.state()
    assert (state["moves"], state["score"], state["board"][0][0]) == (1, 4, 4)
    game.key(0xFF97, True)  # the keypad's Up
    assert game.moves in (1, 2)


def test_a_push_that_changes_nothing_spawns_nothing_and_counts_nothing():
    game = Game2048(start=[[2, 0, 0, 0], [0] * 4, [0] * 4, [0] * 4])
    image = game.draw()
    assert game.push("left") is False
    assert game.moves == 0
    assert game.draw() is image, "nothing changed, so nothing is drawn"


def test_the_state_is_json_and_says_when_the_game_is_over():
    game = Game2048(start=[[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 4, 1024]])
    state = json.loads(json.dumps(game.state()))
    assert (state["over"], state["max_tile"], state["score"], state["moves"]) == (True, 1024, 0, 0)


def test_keys_are_counted_and_the_boards_that_they_led_to_are_listed():
    game = Game2048(start=[[2, 0, 0, 0], [0] * 4, [0] * 4, [0] * 4])
    for key in ("left", "right", "left"):
        game.push(key)
    state = game.state()
    assert (state["keys"], state["moves"]) == (3, 2)
    assert [board[0][0] for board in state["boards"]][:2] == [2, 2], "a push that changed nothing"
    assert state["boards"][-1] == state["board"]
    for _ in range(100):
        game.push("up")
    assert len(game.state()["boards"]) == 32


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"start": [[2, 2], [2, 2]]}, "4 rows of 4"),
        ({"start": [[0, 0, 3, 0]] + [[0] * 4] * 3}, r"board\[0\]\[2\] is 3"),
        ({"near_win": 100}, "power of two"),
        ({"near_win": 2048, "near_win_merges": 9}, "expected 1 to 3"),
        ({"near_win": 64, "start": [[0] * 4] * 4}, "one of them"),
        ({"width": 50}, "96 to 4096"),
    ],
)
def test_a_bad_argument_is_named(kwargs, message):
    with pytest.raises(LabError, match=message):
        Game2048(**kwargs)


@pytest.mark.parametrize("size", [(96, 96), (128, 128), (640, 600), (300, 128), (128, 300)])
def test_tiles_are_drawn_in_their_boxes_and_differ_by_value(size):
    values = [2 << i for i in range(16)]
    game = Game2048(*size, start=[values[i : i + 4] for i in range(0, 16, 4)])
    game.draw()
    pictures = set()
    for r in range(4):
        for c in range(4):
            box = game.layout.cell(r, c)
            assert 0 <= box.left < box.right <= size[0]
            assert 0 <= box.top < box.bottom <= size[1]
            pictures.add(game.draw().crop(box).tobytes())
    assert len(pictures) == 16


def test_the_score_is_on_the_screen_and_only_there_when_only_it_differs():
    one, two = Game2048(seed=1), Game2048(seed=1)
    two.score = 8
    changed = (np.asarray(one.draw()) != np.asarray(two.draw())).any(axis=2)
    ys, xs = np.nonzero(changed)
    assert all(one.layout.score.contains(int(x), int(y)) for x, y in zip(xs, ys, strict=True))
    assert len(xs) > 5
