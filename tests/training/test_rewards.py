"""Rewards: the article's numbers, piece by piece, and everything that is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.training.rewards import (
    ActionCounts,
    GroundingWeights,
    combine,
    count_actions,
    grounding_reward,
    task_reward,
    trajectory_reward,
)

BOX = (0.4, 0.4, 0.6, 0.5)
unit = st.floats(0, 1)


@pytest.mark.parametrize(
    ("point", "position", "containment", "exact"),
    [
        ((0.5, 0.45), 1.0, 1.0, 1.0),
        ((0.503, 0.45), 0.97, 1.0, 1.0),
        ((0.55, 0.45), 0.5, 1.0, 0.0),
        ((0.5, 0.52), 0.3, -0.3, 0.0),
        ((0.6, 0.45), 0.0, 1.0, 0.0),  # the edge is inside, 0.1 away is worth nothing
        ((0.9, 0.9), 0.0, -0.3, 0.0),
    ],
)
def test_the_pieces_and_their_sum_are_the_articles(point, position, containment, exact):
    reward = grounding_reward(point, (0.5, 0.45), BOX)
    assert reward.position == pytest.approx(position)
    assert reward.containment == pytest.approx(containment)
    assert reward.exact == exact
    assert reward.total == pytest.approx(0.6 * position + 0.3 * containment + 0.1 * exact)


def test_without_a_box_there_is_nothing_to_be_inside_of():
    reward = grounding_reward((0.5, 0.5), (0.5, 0.5))
    assert (reward.containment, reward.total) == (0.0, pytest.approx(0.7))


def test_without_a_target_the_middle_of_the_box_is_meant():
    assert grounding_reward((0.5, 0.45), boxes=BOX).total == pytest.approx(1.0)


def test_many_clicks_are_graded_at_once_as_one_by_one():
    draw = np.random.default_rng(0)
    points, targets = draw.random((50, 2)), draw.random((50, 2))
    boxes = np.concatenate([targets * 0.9, targets * 0.9 + 0.1], axis=1)
    together = grounding_reward(points, targets, boxes)
    for i in range(50):
        alone = grounding_reward(points[i], targets[i], boxes[i])
        for piece in ("total", "position", "containment", "exact", "distance"):
            assert getattr(together, piece)[i] == getattr(alone, piece)


def test_a_grid_of_points_against_one_target_gives_the_landscape():
    axis = np.linspace(0, 1, 21)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)  # (21, 21, 2)
    reward = grounding_reward(grid, boxes=BOX)
    assert reward.total.shape == (21, 21)
    assert np.unravel_index(reward.total.argmax(), (21, 21)) == (9, 10)


@given(unit, unit, unit, unit)
def test_the_range_is_what_the_docstring_says(x, y, target_x, target_y):
    total = float(grounding_reward((x, y), (target_x, target_y), BOX).total)
    assert -0.09 - 1e-12 <= total <= 1.0 + 1e-12
    assert -1e-12 <= float(grounding_reward((x, y), (target_x, target_y)).total) <= 0.7 + 1e-12


@pytest.mark.parametrize(
    ("space", "size", "scale"),
    [("0-1000", None, (1000, 1000)), ("pixels", (1280, 720), (1280, 720))],
)
def test_the_same_click_is_worth_the_same_in_every_space(space, size, scale):
    point, target, box = np.array([0.55, 0.45]), np.array([0.5, 0.45]), np.array(BOX)
    expected = grounding_reward(point, target, box).total
    found = grounding_reward(
        point * scale, target * scale, box * np.tile(scale, 2), space=space, size=size
    )
    assert found.total == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (((math.nan, 0.5), (0.5, 0.5)), r"points at 0 is nan; expected a finite number"),
        (((0.5, 0.5), (0.5, math.inf)), r"targets at 1 is inf"),
        ((([0.1, 0.2], [0.3, 500]), (0.5, 0.5)), r"points at \(1, 1\) is 500; .*another space"),
        (((0.5, -0.1), (0.5, 0.5)), r"points at 1 is -0.1"),
        (((0.5, 0.5), None, (0.6, 0.4, 0.4, 0.5)), r"corners are swapped"),
        (((0.5, 0.5), None, (0.4, 0.4, 0.4, 0.5)), r"it is empty"),
        (((0.5, 0.5), None, (0.8, 0.4, 0.1, 0.5)), r"\(x, y, width, height\)"),
        (((0.5, 0.5), None, (0.1, 0.2, 0.3)), r"boxes has shape \(3,\); .*\(x0, y0, x1, y1\)"),
        ((0.5, (0.5, 0.5)), r"points has shape \(\)"),
        (((0.5, 0.5),), r"neither targets nor boxes"),
        ((np.zeros((3, 2)), np.zeros((2, 2))), r"shapes do not go together"),
        ((np.zeros((3, 2)), None, [BOX, BOX]), r"shapes do not go together"),
    ],
)
def test_an_argument_that_would_mean_something_else_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says) as error:
        grounding_reward(*arguments)
    assert isinstance(error.value, LabError)


def test_a_space_is_declared_and_pixels_need_the_screens_size():
    with pytest.raises(LabError, match="expected one of 0-1, 0-1000, pixels"):
        grounding_reward((1, 1), (1, 1), space="thousandths")  # type: ignore[arg-type]
    with pytest.raises(LabError, match="width and height"):
        grounding_reward((1, 1), (1, 1), space="pixels")
    with pytest.raises(LabError, match=r"1280x720 px"):
        grounding_reward((1, 721), (1, 1), space="pixels", size=(1280, 720))


def test_weights_that_divide_by_zero_are_refused():
    with pytest.raises(LabError, match="radius is 0"):
        GroundingWeights(radius=0)


def test_a_task_pays_for_what_was_done():
    assert task_reward([True, False]).tolist() == [1.0, 0.0]
    assert task_reward([0.25, 1.0], done=2.0, missed=-1.0).tolist() == [-0.25, 2.0]
    with pytest.raises(ValueError, match=r"success at 1 is 1\.5"):
        task_reward([0, 1.5])
    with pytest.raises(ValueError, match="success at 0 is nan"):
        task_reward([math.nan])


PRESS = {"action": "press", "keys": ["left"]}
LOOK = {"action": "screenshot"}


@pytest.mark.parametrize(
    ("actions", "screens", "useless", "repeated"),
    [
        ([PRESS, PRESS], [b"0", b"1", b"2"], 0, 0),  # the same key twice, and both did something
        ([PRESS, PRESS, PRESS], [b"0", b"1", b"1", b"1"], 2, 1),
        ([LOOK, LOOK, {"action": "wait"}], [b"0", b"0", b"0", b"0"], 0, 0),
        ([PRESS, LOOK, PRESS], [b"0", b"0", b"0", b"0"], 2, 0),
        ([None, None], [b"0", b"0", b"0"], 2, 1),
        ([], [b"0"], 0, 0),
    ],
)
def test_useless_and_repeated_actions_are_told_from_useful_ones(
    actions, screens, useless, repeated
):
    assert count_actions(actions, screens) == ActionCounts(len(actions), useless, repeated)


def test_an_episode_without_its_screenshots_cannot_be_judged():
    with pytest.raises(LabError, match=r"2 actions need 3 screenshots .* not 2"):
        count_actions([PRESS, PRESS], [b"0", b"1"])


def test_a_trajectory_costs_its_steps_and_its_idle_ones_more_down_to_a_floor():
    counts = [ActionCounts(0, 0, 0), ActionCounts(4, 2, 1), ActionCounts(500, 0, 0)]
    assert trajectory_reward(counts).tolist() == pytest.approx([0.0, -0.19, -1.0])
    with pytest.raises(LabError, match="step_cost is -1"):
        trajectory_reward(counts, step_cost=-1)
    with pytest.raises(LabError, match="floor is 1"):
        trajectory_reward(counts, floor=1)


def test_pieces_add_up_with_their_weights():
    both = combine({"task": [1.0, 0.0], "cost": [-0.1, -0.5]}, {"task": 2.0, "cost": 0.5})
    assert both.total.tolist() == pytest.approx([1.95, -0.25])
    assert sum(both.pieces.values()).tolist() == both.total.tolist()


@pytest.mark.parametrize(
    ("pieces", "weights", "says"),
    [
        ({"task": [1.0]}, {"cost": 1.0}, r"pieces are \['task'\] but weights are for \['cost'\]"),
        ({}, {}, "give one to each"),
        ({"a": [1.0], "b": [1.0, 2.0]}, {"a": 1, "b": 1}, "differ in shape"),
        ({"a": [math.nan]}, {"a": 1}, "a at 0 is nan"),
        ({"a": [1.0]}, {"a": math.inf}, "weight of 'a' is inf"),
    ],
)
def test_pieces_that_do_not_go_together_are_refused(pieces, weights, says):
    with pytest.raises(LabError, match=says):
        combine(pieces, weights)
