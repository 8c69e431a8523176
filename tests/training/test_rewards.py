"""Rewards: the article's numbers, piece by piece, and everything that is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.errors import LabError
from cua_lab.training.rewards import (
    GroundingWeights,
    grounding_reward,
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
