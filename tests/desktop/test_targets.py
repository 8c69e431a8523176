"""Targets: layouts, instructions, clicks, and the blind chance that the task allows."""

import json

import numpy as np
import pytest

from cua_lab.desktop.app import LEFT, RIGHT
from cua_lab.desktop.apps import Targets
from cua_lab.desktop.apps.targets import COLOURS, GAP, QUIET
from cua_lab.desktop.geometry import Box
from cua_lab.errors import LabError

LEVELS = [1, 2, 3]


@pytest.mark.parametrize("level", LEVELS)
def test_a_seed_makes_the_task_to_the_last_pixel(level):
    one, two = Targets(level, seed=3), Targets(level, seed=4)
    two.reset(3)
    assert one.state() == two.state()
    assert one.draw().tobytes() == two.draw().tobytes()
    two.reset(4)
    assert one.draw().tobytes() != two.draw().tobytes()


@pytest.mark.parametrize("level", LEVELS)
def test_boxes_lie_inside_the_screen_and_apart_and_in_the_asked_sizes(level):
    app = Targets(level, width=160, height=128, distractors=(3, 5))
    counts = set()
    for seed in range(100):
        app.reset(seed)
        counts.add(len(app.boxes))
        for i, box in enumerate(app.boxes):
            assert box.overlap(Box(4, 4, 156, 124)) == box
            assert 24 <= box.width <= 40
            assert 20 <= box.height <= 28
            for other in app.boxes[:i]:
                assert box.grow(GAP).overlap(other) is None
    assert counts == {4, 5, 6}


@pytest.mark.parametrize("level", LEVELS)
def test_exactly_one_thing_fits_the_instruction(level):
    app = Targets(level, distractors=(0, 3))
    seen = set()
    for seed in range(200):
        app.reset(seed)
        if level == 3:
            fits = [
                t for t in app.things if app.instruction == f"Click the shape labelled {t.label}."
            ]
        else:
            fits = [t for t in app.things if app.instruction == f"Click the {t.colour} button."]
        assert fits == [app.target]
        seen.add(app.instruction)
    assert len(seen) > 8 or (level == 1 and len(seen) == 1)


def test_level_1_is_red_among_quiet_colours_in_one_to_three_boxes():
    app = Targets(1)
    for seed in range(100):
        app.reset(seed)
        assert app.target.colour == "red"
        assert 1 <= len(app.things) <= 3
        assert all(thing.colour in QUIET for thing in app.things[1:])
        assert app.instruction == "Click the red button."


def test_a_box_shows_the_colour_of_its_thing():
    for seed in range(30):
        app = Targets(2, seed=seed, distractors=(2, 3))
        for thing in app.things:
            assert app.draw().getpixel(thing.box.center) == COLOURS[thing.colour]


@pytest.mark.parametrize("level", LEVELS)
def test_a_click_inside_hits_and_the_pixel_beside_misses(level):
    for seed in range(20):
        app = Targets(level, seed=seed)
        left, top, right, bottom = app.target.box
        inside = [(left, top), (right - 1, bottom - 1), app.target.box.center]
        outside = [(left - 1, top), (right, top), (left, bottom), (left, top - 1)]
        for points, hit in ((inside, True), (outside, False)):
            for x, y in points:
                app.reset(seed)
                app.pointer(x, y, 0)
                app.pointer(x, y, LEFT)
                app.pointer(x, y, 0)
                state = app.state()
                assert (state["hit"], state["first_hit"]) == (hit, hit)
                assert (state["last_click"], state["clicks"]) == ([x, y], 1)


def test_only_the_left_button_going_down_is_a_click():
    app = Targets(1, seed=1)
    x, y = app.target.box.center
    app.pointer(x, y, 0)
    app.pointer(x, y, RIGHT)
    app.pointer(x, y, 0)
    app.key(0xFF0D, True)
    assert app.state()["clicks"] == 0
    assert app.state()["hit"] is False
    app.pointer(1, 1, LEFT)  # pressed outside, dragged in: no second click
    app.pointer(x, y, LEFT)
    app.pointer(x, y, 0)
    assert (app.clicks, app.hit) == (1, False)


def test_the_first_click_is_remembered_when_later_ones_are_better():
    """A policy that clicks everywhere does not get full marks unless the grader wants it so."""
    app = Targets(1, seed=1)
    for x, y in ((1, 1), app.target.box.center):
        app.pointer(x, y, LEFT)
        app.pointer(x, y, 0)
    assert (app.state()["hit"], app.state()["first_hit"], app.clicks) == (True, False, 2)


def test_hit_and_miss_look_different_and_a_look_changes_nothing():
    app = Targets(1, seed=1)
    before = app.draw()
    app.pointer(2, 2, 0)
    assert app.draw() is before
    app.pointer(2, 2, LEFT)
    miss = app.draw().tobytes()
    app.pointer(2, 2, 0)
    app.pointer(*app.target.box.center, LEFT)
    assert len({before.tobytes(), miss, app.draw().tobytes()}) == 3


def test_no_blind_click_hits_more_than_one_time_in_ten():
    """Whoever clicks well has looked: on default settings the best single pixel stays below 0.1."""
    app, hits = Targets(1), np.zeros((128, 128))
    for seed in range(4000):
        app.reset(seed)
        left, top, right, bottom = app.target.box
        hits[top:bottom, left:right] += 1
    assert hits.max() / 4000 < 0.11  # 0.096 on 20 000 seeds; the maximum of 4 000 is noisier


def test_the_state_is_json():
    for level in LEVELS:
        state = Targets(level, seed=1).state()
        assert json.loads(json.dumps(state)) == state
        assert state["target"] == state["boxes"][0]
        assert state["last_click"] is None


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"level": 4}, "levels 1, 2 and 3"),
        ({"level": 2, "distractors": (0, 30)}, "at most 8 distractors"),
        ({"distractors": (3, 1)}, "distractors is"),
        ({"box_width": (200, 300)}, "do not fit"),
        ({"box_width": (2, 3)}, "from 8 on"),
        ({"level": 3, "distractors": (15, 15)}, "do not fit"),
        ({"height": 20}, "96 to 4096"),
    ],
)
def test_a_bad_argument_is_named(kwargs, message):
    with pytest.raises(LabError, match=message):
        Targets(**kwargs)


def test_boxes_grow_with_the_screen_unless_said_otherwise():
    app = Targets(1, width=640, height=600, seed=1)
    assert 24 * 600 / 128 - 1 <= app.target.box.width <= 40 * 600 / 128 + 1
    assert Targets(1, width=640, height=600, box_width=(30, 30)).target.box.width == 30
