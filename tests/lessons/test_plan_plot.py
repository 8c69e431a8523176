"""The planner's bars: the parts of a step are the step."""

from dataclasses import replace

import pytest

from cua_lab.lessons.plan_plot import minutes_of, plan_figure, plans
from cua_lab.miles.capacity import H200
from cua_lab.miles.recipe import load_miles_recipe


def test_the_minutes_of_the_parts_add_up_to_the_step() -> None:
    for _, step in plans(load_miles_recipe(), H200, (10, 40)):
        assert sum(minutes_of(step).values()) == pytest.approx(step.step_s / 60)


def test_each_bar_is_a_whole_step_and_the_words_say_its_largest_part() -> None:
    speeds = replace(H200, transfer_min_per_gib=0.0)
    figure = plan_figure({"free": dict(plans(load_miles_recipe(), speeds, (10, 40)))})
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert [sum(widths[row::2]) for row in (0, 1)] == pytest.approx([1.0, 1.0])
    assert "10 desktops 7 minutes, most of them sandboxes" in str(figure.alt)
