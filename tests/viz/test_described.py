"""A screenshot or film strip says what it shows."""

from PIL import Image

from cua_lab.viz import Frame, filmstrip
from cua_lab.viz.described import Described


def test_a_described_image_is_the_image_with_words() -> None:
    plain = Image.new("RGB", (4, 3), (1, 2, 3))
    shown = Described.of(plain, "Four by three dark pixels")
    data, metadata = shown._repr_mimebundle_()
    assert shown.tobytes() == plain.tobytes()
    assert shown.size == (4, 3)
    assert set(data) == {"image/png", "text/plain"}
    assert metadata["image/png"]["alt"] == "Four by three dark pixels"
    assert shown._repr_jpeg_() is None, "a notebook would store both"


def test_a_film_strip_tells_what_was_thought_and_done() -> None:
    screen = Image.new("RGB", (16, 16))
    frames = [Frame(screen, label="click (3, 4)"), Frame(screen).thinking("12/34 row", "12/34")]
    alt = filmstrip(frames, title="Two turns").alt
    assert alt.startswith("Two turns. Film strip of 2 screenshots. 0: click (3, 4); 1: said")
    assert "12/34 row" in alt
