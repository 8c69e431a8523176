"""Grades are functions of the app's state; a state that cannot be read has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.envs.lab.grading import (
    Grade,
    Ungraded,
    click_distance,
    click_inside,
    score_linear,
    tile_reached,
    todo_created,
    todos_completed,
)

SIZE = (128, 128)
BOX = [40, 40, 60, 60]
MILK, RENT = {"text": "Buy milk", "done": False}, {"text": "Pay rent", "done": False}


def clicked(x: int, y: int) -> dict:
    left, top, right, bottom = BOX
    hit = left <= x < right and top <= y < bottom
    return {"hit": hit, "clicks": 1, "last_click": [x, y], "target": BOX}


def test_the_score_counts_as_a_part_of_the_target() -> None:
    assert score_linear({"score": 250}, 1000) == Grade(0.25, False)
    assert score_linear({"score": 5000}, 1000) == Grade(1.0, True)


def test_a_tile_is_reached_or_not() -> None:
    assert tile_reached({"max_tile": 32}, 64) == Grade(0.0, False)
    assert tile_reached({"max_tile": 128}, 64) == Grade(1.0, True)


def test_inside_pays_for_the_last_click_only() -> None:
    assert click_inside({"hit": True}) == Grade(1.0, True)
    assert click_inside({"hit": False}) == Grade(0.0, False)


def test_a_near_miss_is_worth_more_than_a_far_one_and_less_than_a_hit() -> None:
    rewards = [click_distance(clicked(x, 50), SIZE).reward for x in (50, 59, 60, 70, 127)]
    assert rewards[0] == rewards[1] == 1.0
    assert 0.5 > rewards[2] > rewards[3] > rewards[4] > 0.0
    assert not click_distance(clicked(60, 50), SIZE).success


def test_no_click_is_worth_nothing() -> None:
    state = {"hit": False, "clicks": 0, "last_click": None, "target": BOX}
    assert click_distance(state, SIZE) == Grade(0.0, False)


@given(st.integers(0, 127), st.integers(0, 127))
def test_distance_and_inside_agree_on_success_everywhere(x: int, y: int) -> None:
    state = clicked(x, y)
    near = click_distance(state, SIZE)
    assert near.success == click_inside(state).success
    assert near.reward == 1.0 if near.success else 0.0 < near.reward < 0.5


def test_items_count_only_when_the_others_were_left_alone() -> None:
    before = [MILK, RENT]
    done = {"text": "Buy milk", "done": True}
    assert todos_completed({"items": [done, RENT]}, before, ["Buy milk"]) == Grade(1.0, True)
    assert todos_completed({"items": before}, before, ["Buy milk"]) == Grade(0.0, False)
    half = todos_completed({"items": [done, RENT]}, before, ["Buy milk", "Pay rent"])
    assert half == Grade(0.5, False)
    both = [done, {"text": "Pay rent", "done": True}]
    assert todos_completed({"items": both}, before, ["Buy milk"]) == Grade(0.0, False)
    assert todos_completed({"items": [done]}, before, ["Buy milk"]) == Grade(0.0, False)
    assert todos_completed({"items": [RENT]}, before, ["Buy milk"]) == Grade(0.0, False)


def test_exactly_one_new_item_with_exactly_that_text() -> None:
    new = {"text": "Walk dog", "done": False}
    assert todo_created({"items": [MILK, new]}, [MILK], "Walk dog") == Grade(1.0, True)
    assert todo_created({"items": [MILK, new, new]}, [MILK], "Walk dog") == Grade(0.0, False)
    assert todo_created({"items": [new]}, [MILK], "Walk dog") == Grade(0.0, False)
    lower = {"text": "walk dog", "done": False}
    assert todo_created({"items": [MILK, lower]}, [MILK], "Walk dog") == Grade(0.0, False)


@pytest.mark.parametrize(
    "grade",
    [
        lambda state: score_linear(state, 10),
        lambda state: tile_reached(state, 64),
        click_inside,
        lambda state: click_distance(state, SIZE),
        lambda state: todos_completed(state, [MILK], ["Buy milk"]),
        lambda state: todo_created(state, [MILK], "x"),
    ],
)
@pytest.mark.parametrize("value", ["absent", None, "7", True, float("nan")])
def test_a_state_that_cannot_be_read_raises_and_is_no_zero(grade, value) -> None:
    """A grader that could not reach its game is a failure, not a reward of 0."""
    names = ("score", "max_tile", "hit", "clicks", "items")
    if value is True:
        names = ("score", "max_tile", "clicks", "items")
    state = {} if value == "absent" else dict.fromkeys(names, value)
    with pytest.raises(Ungraded, match="the app's state has"):
        grade(state)
