"""Clicks on screens: a hit is a point inside the frame that is drawn."""

from PIL import Image

from cua_lab.desktop.geometry import Box
from cua_lab.lessons.clicks import Clicks, clicks_figure


def test_hits_are_counted_by_the_frame_that_is_drawn() -> None:
    screen = Image.new("RGB", (64, 64), "white")
    clicks = Clicks(screen, [(10, 10), (19, 19), (20, 10), (9, 12)], Box.at(10, 10, 10, 10))
    assert clicks.inside == 2
    figure = clicks_figure({"own": [clicks, clicks], "others": [clicks]})
    assert [axes.get_title("left") for axes in figure.axes] == ["2 of 4"] * 3 + [""]
    assert figure._repr_png_().startswith(b"\x89PNG")
