"""The lessons' own figures: their numbers are those of the functions beside them."""

from dataclasses import replace
from statistics import pstdev

import pytest

from cua_lab.computer.coordinates import View
from cua_lab.desktop.apps import Game2048, Targets
from cua_lab.desktop.apps.recording import RecordingApp
from cua_lab.lessons.aim import aim_figure
from cua_lab.lessons.costs import binding_limit, sweep_figure, token_figure, token_parts
from cua_lab.lessons.dataway import BOXES, data_way
from cua_lab.lessons.keyroll import bars_of, key_name, key_roll
from cua_lab.lessons.placement import LANES, placement
from cua_lab.lessons.spread import silence, silence_figure, spread_figure, spread_of
from cua_lab.lessons.token_bars import token_bars
from cua_lab.miles.checks_numbers import context
from cua_lab.miles.cost import costs_of
from cua_lab.miles.recipe import load_miles_recipe

LEFT, CONTROL = 0xFF51, 0xFFE3
CHORD = [("down", CONTROL), ("down", ord("a")), ("up", ord("a")), ("up", CONTROL)]


def test_a_chord_is_a_bar_inside_a_bar_and_a_key_left_down_lasts_to_the_end() -> None:
    assert bars_of(CHORD) == [(CONTROL, 0, 3), (ord("a"), 1, 2)]
    assert bars_of([("down", LEFT), ("down", 97), ("up", 97)])[0] == (LEFT, 0, 3)
    assert [key_name(keysym) for keysym in (LEFT, CONTROL, 97)] == ["Left", "Control", "a"]


def test_a_silent_group_is_one_without_spread() -> None:
    spread = spread_of([[0.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert (spread.silent, spread.groups, spread.mean) == (2, 3, pytest.approx(1 / 3))
    assert spread.within == pytest.approx(pstdev([0.0, 1.0]) / 3)


def test_a_group_of_two_is_silent_at_least_every_second_time() -> None:
    assert silence(0.5, 2) == 0.5
    assert silence(0.0, 8) == silence(1.0, 8) == 1.0
    assert silence(0.3, 8) == pytest.approx(0.3**8 + 0.7**8)


def test_the_limit_that_is_drawn_is_the_one_that_preflight_checks() -> None:
    recipe = load_miles_recipe()
    limit, name = binding_limit(recipe)
    (check,) = context(recipe)
    assert f"of {limit}" in check.saw
    assert (limit, name) == (12832, "context.response + the first prompt:")
    wide = replace(recipe, context=replace(recipe.context, response=20_000))
    assert binding_limit(wide) == (recipe.context.limit, "context.limit")
    for figure in (token_figure(recipe), sweep_figure(recipe, (320, 640), (8, 24))):
        drawn = [
            list(line.get_xdata()) + list(line.get_ydata()) for a in figure.axes for line in a.lines
        ]
        assert any(limit in values for values in drawn)
        assert not any(recipe.context.limit in values for values in drawn)


def test_the_parts_of_an_episode_add_up_to_its_costs() -> None:
    recipe = load_miles_recipe()
    parts, costs = token_parts(recipe), costs_of(recipe)
    sums = [sum(parts[name]) for name in ("a turn", "an episode", "at most")]
    assert sums == [costs.turn_tokens, costs.typical_tokens, costs.longest_tokens]


def test_an_app_that_is_listened_to_behaves_as_before() -> None:
    plain, heard = Game2048(seed=3), RecordingApp(Game2048(seed=3))
    for app in (plain, heard):
        app.key(LEFT, True)
        app.key(LEFT, False)
        app.pointer(1, 2, 1)
    assert heard.state() == plain.state()
    assert heard.draw().tobytes() == plain.draw().tobytes()
    assert heard.keys == [("down", LEFT), ("up", LEFT)]
    assert heard.points == [(1, 2, 1)]
    heard.reset(3)
    assert heard.keys == heard.points == []


def test_every_figure_draws_and_every_box_names_a_room() -> None:
    screen = Targets(2, width=256, height=256, seed=3).draw()
    figures = [
        data_way(),
        key_roll({"one": CHORD, "none": []}),
        aim_figure(screen.reduce(2), screen, View((256, 256), 128, "0-1000"), (300, 700)),
        token_bars(["<tool_call>", "\n$x$ " * 20], [1.0, 0.3]),
        spread_figure({"linear": [[0.1, 0.2]], "step": [[0.0, 0.0]]}),
        placement(),
        token_figure(load_miles_recipe()),
        sweep_figure(load_miles_recipe(), widths=(256, 512), turns=(8, 24)),
        silence_figure((2, 8)),
    ]
    assert all(figure._repr_png_().startswith(b"\x89PNG") for figure in figures)
    assert len({box.title for box in BOXES.values()}) == len(BOXES)
    laptop, miles = LANES.values()
    assert len(laptop) == len(miles), "boxes in one column do the same work"
