"""Start boards: what is looked up by lines is what playing every next tile out gives."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from cua_lab.desktop.apps import boards2048
from cua_lab.desktop.apps import rules2048 as rules

TARGET = 16
tiles = st.sampled_from([0, 2, 4, 4, 8, 8, 16])
boards = st.tuples(*[st.tuples(*[tiles] * 4)] * 4)


def played_out(board: rules.Board, keys: tuple[rules.Direction, ...]) -> set[bool]:
    """Whether the keys reach the target, with each tile that may come after each of them."""
    pushed = rules.move(board, keys[0])[0]
    if len(keys) == 1:
        return {any(TARGET in row for row in pushed)}
    after = [board] if pushed == board else list(boards2048._spawned(pushed))
    return {won for each in after for won in played_out(each, keys[1:])}


@settings(max_examples=40, deadline=None)
@given(boards, st.sampled_from([1, 2]))
def test_sure_and_possible_keys_are_those_of_playing_every_next_tile_out(board, count) -> None:
    ends = {keys: played_out(board, keys) for keys in product(rules.DIRECTIONS, repeat=count)}
    certain, possible = boards2048._outcomes(board, TARGET, count)
    assert certain == {keys for keys, won in ends.items() if won == {True}}
    assert possible == {keys for keys, won in ends.items() if True in won}


def test_the_boards_of_seeds_stay_what_they_were() -> None:
    """Recorded when each next tile was still played out: results are compared across versions."""
    assert boards2048.near_win(64, 2, 7) == RECORDED[64, 2]
    assert boards2048.near_win(64, 3, 7) == RECORDED[64, 3]


RECORDED = {
    (64, 2): ((0, 4, 8, 32), (0, 0, 0, 16), (0, 8, 0, 16), (4, 0, 0, 4)),
    (64, 3): ((16, 0, 0, 0), (0, 8, 0, 8), (0, 0, 32, 0), (0, 2, 0, 4)),
}
