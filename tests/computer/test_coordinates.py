"""Coordinates: exact, corners on corners, never outside, never silently moved."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.computer.coordinates import CoordinateError, View

sides = st.integers(1, 4000)
screens = st.tuples(sides, sides)
spaces = st.sampled_from(["pixels", "0-1000", "0-1"])


@given(screens, st.none() | st.integers(1, 4000), spaces)
def test_the_corners_of_what_the_model_sees_are_the_corners_of_the_screen(screen, width, space):
    view = View(screen, width, space)
    right, bottom = view.limits()
    assert view.to_screen(0, 0) == (0, 0)
    last_x = screen[0] - 1 if right else 0
    last_y = screen[1] - 1 if bottom else 0
    assert view.to_screen(right, bottom) == (last_x, last_y)


@given(screens, st.none() | st.integers(1, 4000), spaces, st.data())
def test_every_allowed_coordinate_is_a_pixel_of_the_screen(screen, width, space, data):
    view = View(screen, width, space)
    x, y = (
        data.draw(st.floats(0, 1) if space == "0-1" else st.integers(0, int(limit)))
        for limit in view.limits()
    )
    px, py = view.to_screen(x, y)
    assert 0 <= px < screen[0]
    assert 0 <= py < screen[1]


@given(screens, st.sampled_from(["pixels", "0-1"]), st.data())
def test_a_pixel_said_and_read_back_is_the_same_pixel(screen, space, data):
    view = View(screen, None, space)
    pixel = (data.draw(st.integers(0, screen[0] - 1)), data.draw(st.integers(0, screen[1] - 1)))
    assert view.to_screen(*view.from_screen(*pixel)) == pixel


@given(st.tuples(st.integers(1, 1001), st.integers(1, 1001)), st.data())
def test_thousandths_name_every_pixel_of_a_screen_up_to_1001_wide(screen, data):
    """Beyond that, as on a 4K screen, two neighbours share a thousandth (ms-swift#4831)."""
    view = View(screen, None, "0-1000")
    pixel = (data.draw(st.integers(0, screen[0] - 1)), data.draw(st.integers(0, screen[1] - 1)))
    assert view.to_screen(*view.from_screen(*pixel)) == pixel


@given(screens, st.integers(1, 4000), st.data())
def test_a_pixel_of_a_smaller_screenshot_points_into_the_block_it_stands_for(screen, width, data):
    view = View(screen, width)
    for size, shown, axis in zip(screen, view.size, (0, 1), strict=True):
        if shown == 1 or shown > size:
            continue
        value = data.draw(st.integers(0, shown - 1))
        said = (value, 0) if axis == 0 else (0, value)
        pixel = view.to_screen(*said)[axis]
        assert math.floor(value * size / shown) <= pixel < math.ceil((value + 1) * size / shown)


def test_screenshots_keep_the_aspect_and_are_never_enlarged() -> None:
    assert View((1280, 1200), 640).size == (640, 600)
    assert View((128, 128), 640).size == (128, 128)
    assert View((1920, 1080), 1000).size == (1000, 563)


def test_half_size_pixels_are_scaled_back_as_by_hand() -> None:
    view = View((1280, 1200), 640)
    assert view.to_screen(0, 0) == (0, 0)
    assert view.to_screen(320, 300) == (641, 601)  # 320 * 1279 / 639 = 640.5
    assert view.to_screen(639, 599) == (1279, 1199)


@pytest.mark.parametrize("space", ["pixels", "0-1000", "0-1"])
@pytest.mark.parametrize(
    "value", [True, "5", None, math.nan, math.inf, [5], {}, -1, 1e9, 10**400, -0.5]
)
def test_a_coordinate_that_is_none_is_refused_with_its_range(space, value) -> None:
    """asyncvnc raises OverflowError after its state changed; True is not 1."""
    view = View((128, 128), None, space)
    limit = view.limits()[0]
    with pytest.raises(CoordinateError) as error:
        view.to_screen(value, 0)
    assert str(error.value).startswith("x ")
    assert f"0 to {limit}" in str(error.value)


def test_whole_numbers_may_be_written_as_floats_but_halves_are_refused() -> None:
    view = View((128, 128), None, "0-1000")
    assert view.to_screen(500.0, 1000) == (64, 127)
    with pytest.raises(CoordinateError, match=r"whole number from 0 to 1000; got 500\.5"):
        view.to_screen(500.5, 0)


def test_a_pixel_beside_the_screen_has_no_coordinates() -> None:
    with pytest.raises(CoordinateError):
        View((128, 128)).from_screen(128, 0)
