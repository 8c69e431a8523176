"""The reward's landscape shows the reward's own values."""

import pytest

from cua_lab.lessons.landscape import distance_landscape, landscape, landscape_figure
from cua_lab.training.rewards import grounding_reward

BOX = (0.4, 0.4, 0.6, 0.5)


def test_a_place_in_the_landscape_is_worth_what_a_click_there_is() -> None:
    """Row 20, column 90 of 201 is the point (0.45, 0.10)."""
    reward = landscape(BOX)
    assert reward.total.shape == (201, 201)
    assert reward.total[20, 90] == grounding_reward((0.45, 0.10), boxes=BOX).total
    assert reward.total.max() == pytest.approx(1.0)
    assert reward.total.min() == pytest.approx(-0.09)


def test_the_distance_reward_is_one_inside_and_flat_nowhere_outside() -> None:
    reward = distance_landscape(BOX, side=101)
    assert (reward[40:50, 40:60] == 1.0).all()
    assert reward[45, 61] < 0.5
    away = reward[45, 61:]
    assert (away[1:] < away[:-1]).all(), "the nearer of two misses is always paid more"


def test_the_figure_has_a_map_for_each_reward_and_a_cut_through_the_middle() -> None:
    maps = {"distance": distance_landscape(BOX, side=101), "grounding": landscape(BOX).total}
    figure = landscape_figure(maps, BOX)
    *panels, cut = figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "distance: 0.04 to 1.00",
        "grounding: -0.09 to 1.00",
    ]
    heights = [line.get_ydata() for line in cut.lines]
    assert [max(row) for row in heights] == [1.0, pytest.approx(1.0, abs=0.01)]
    figure.canvas.draw()
