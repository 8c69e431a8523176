"""What closed eyes score on every template: a task that they solve teaches nobody to look."""

import random

import pytest

from cua_lab.desktop.apps import Game2048, boards2048, rules2048
from cua_lab.desktop.apps.transcripts import board_thought, keys_along
from cua_lab.envs.browser.env import env as browser
from cua_lab.envs.lab import blind
from cua_lab.envs.lab.env import env as lab
from cua_lab.errors import LabError

READ = [
    ("2048-near-win", {}, 2, 0.32),
    ("2048-near-win", {"merges": 1}, 1, 0.56),
    ("2048-best-merge", {}, 1, 0.7),
    ("2048-best-merge", {"keys": 2}, 2, 0.75),
    ("targets-click", {"level": 1}, 1, 0.14),
    ("targets-click", {"level": 2}, 1, 0.14),
    ("targets-click", {"level": 3}, 1, 0.14),
    ("todo-complete", {}, 1, 0.42),
    ("todo-create", {}, 1, 0.14),
]
"""Template, arguments, turns, and the most that a blind sequence may score."""
SPENT = [
    ("2048-score", {}, 4, 0.75),
    ("2048-reach-tile", {}, 8, 1.0),
]
"""These two pay for keys: 20 a turn, and no look at the board, go a long way."""
SHORT_CUT = "errands-open"
"""Its reward has a short cut on purpose, and that is always in one place."""


@pytest.mark.parametrize(("template", "args", "turns", "most"), READ)
def test_the_best_blind_sequence_scores_little_where_a_screen_must_be_read(
    template, args, turns, most
) -> None:
    found = blind.best_blind(template, args, max_keys=20, turns=turns)
    assert found.seeds >= 200
    assert found.score <= most


@pytest.mark.parametrize(("template", "args", "turns", "most"), SPENT)
def test_keys_without_eyes_score_on_the_templates_that_pay_for_keys(
    template, args, turns, most, monkeypatch
) -> None:
    monkeypatch.setattr(blind, "LONGEST_CYCLE", 3)
    found = blind.best_blind(template, args, max_keys=20, turns=turns, seeds=200)
    assert 0.3 < found.score <= most


def test_a_short_cut_is_found_with_closed_eyes() -> None:
    found = blind.best_blind(SHORT_CUT, {}, max_keys=20, turns=1, seeds=200)
    assert found.score == 1.0
    assert found.actions[0]["y"] > 800  # the bar at the bottom


def test_no_template_is_left_out() -> None:
    told = {SHORT_CUT, *(row[0] for row in (*READ, *SPENT))}
    assert told == {*lab.templates, *browser.templates}


@pytest.mark.parametrize("seed", range(12))
def test_exactly_four_of_sixteen_key_pairs_win_whatever_spawns(seed) -> None:
    board = boards2048.near_win(64, 2, seed)
    assert sorted(v for row in board for v in row if v > 8) == [16, 16, 32]
    assert 2 <= sum(0 < v <= 8 for row in board for v in row) <= 6
    right = set(boards2048.winning_keys(board, 64, 2))
    assert len(right) == 4
    for spawns in range(4):  # the page's generator is another one than the app's
        for first in boards2048.DIRECTIONS:
            for second in boards2048.DIRECTIONS:
                app = Game2048(start=board)
                app._rng = random.Random(spawns)
                app.push(first)
                app.push(second)
                assert (app.state()["max_tile"] == 64) == ((first, second) in right)


def test_boards_differ_and_come_again_with_their_seed() -> None:
    boards = [boards2048.near_win(64, 2, seed) for seed in range(60)]
    boards2048.near_win.cache_clear()
    assert boards == [boards2048.near_win(64, 2, seed) for seed in range(60)]
    assert len(set(boards)) == 60


@pytest.mark.parametrize(
    ("target", "merges", "message"),
    [
        (100, 1, "power of two"),
        (64, 4, "expected 1 to 3"),
        (8, 2, "expected 1 to 1"),
        (64, 0, "1 to 3"),
    ],
)
def test_a_board_that_cannot_be_is_refused(target, merges, message) -> None:
    with pytest.raises(LabError, match=message):
        boards2048.near_win(target, merges, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_line_of_the_largest_pair_is_the_one_that_gains_most_in_the_middle_of_a_game(
    seed,
) -> None:
    board = boards2048.mid_game(seed)
    said = keys_along(board_thought(board))
    gains = {key: rules2048.move(board, key)[1] for key in boards2048.DIRECTIONS}
    other = max(gain for key, gain in gains.items() if key not in said)
    assert {gains[key] for key in said} == {boards2048.best_gain(board)}
    assert boards2048.best_gain(board) >= 2 * other
