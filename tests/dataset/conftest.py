"""Screens and rows that the data tests share."""

from pathlib import Path

import pytest
from PIL import Image, ImageDraw


def draw_screen(path: Path, *, size: tuple[int, int] = (1024, 768), shift: int = 0) -> Path:
    """A screen with a few coloured boxes; `shift` moves them."""
    image = Image.new("RGB", size, (236, 236, 236))
    pen = ImageDraw.Draw(image)
    for index in range(6):
        x = (shift + 37 + index * size[0] // 7) % (size[0] - 90)
        y = (shift * 3 + index * size[1] // 8) % (size[1] - 60)
        pen.rectangle((x, y, x + 80, y + 40), fill=(40 * index, 200 - 30 * index, 90))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, compress_level=1)
    return path


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """A folder with four different screens of 1024x768: a.png ... d.png."""
    for index, name in enumerate("abcd"):
        draw_screen(tmp_path / f"{name}.png", shift=171 * index)
    return tmp_path


@pytest.fixture
def good_row() -> dict:
    """A row against which there is nothing to say, given `shots`."""
    return {
        "screenshot": "a.png",
        "instruction": "Open the settings",
        "action": "click",
        "coordinates": [412, 87],
        "coordinate_space": "pixels",
        "bbox": [400, 80, 430, 95],
    }
