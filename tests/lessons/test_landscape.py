"""The reward's landscape shows the reward's own values."""

import pytest

from cua_lab.lessons.landscape import landscape, landscape_figure
from cua_lab.training.rewards import grounding_reward

BOX = (0.4, 0.4, 0.6, 0.5)


def test_a_place_in_the_landscape_is_worth_what_a_click_there_is():
    """Row 20, column 90 of 201 is the point (0.45, 0.10)."""
    reward = landscape(BOX)
    assert reward.total.shape == (201, 201)
    assert reward.total[20, 90] == grounding_reward((0.45, 0.10), boxes=BOX).total
    assert reward.total.max() == pytest.approx(1.0)
    assert reward.total.min() == pytest.approx(-0.09)


def test_the_figure_has_the_total_and_its_three_pieces():
    figure = landscape_figure(BOX, target=(0.45, 0.45))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title for title in titles if title] == [
        "total: -0.09 to 1.00",
        "position",
        "containment",
        "exact",
    ]
    figure.canvas.draw()
