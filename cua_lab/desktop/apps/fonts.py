"""Which font draws which character, and what stands for one that none can draw.

    "Résumé 日" ──shown──▶ "Résumé [U+65E5]" ──runs──▶ ("R", bundled), ("é", wide), ...

Pillow's bundled font has the letters of English alone (python-pillow/Pillow#2779); DejaVu, which
matplotlib brings along, has Latin, Greek, Cyrillic, Arabic, Hebrew and many signs. Invariant: a
character that can be seen is seen: as itself or, where no font has it, by its number; two
different characters never look alike because both are a box.
"""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path

from PIL import ImageFont

DEJAVU = "mpl-data/fonts/ttf/DejaVuSans.ttf"
NO_CHARACTER = "\uffff"
"""Of this code point every font shows its box for what it lacks."""


@lru_cache(maxsize=64)
def bundled(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font at a size in pixels."""
    loaded = ImageFont.load_default(size)
    assert isinstance(loaded, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return loaded


@lru_cache(maxsize=64)
def wide(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu at a size in pixels; Pillow's own where matplotlib is not installed."""
    spec = importlib.util.find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / DEJAVU
        if path.is_file():
            return ImageFont.truetype(str(path), size)
    return bundled(size)


@lru_cache(maxsize=4096)
def shown(text: str) -> str:
    """The text as it is drawn: without what cannot be seen, numbers for what no font has."""
    return "".join(_shown(char) for char in text)


def runs(text: str, size: int) -> Iterator[tuple[ImageFont.FreeTypeFont, str]]:
    """A shown text in pieces of one font, at a size in pixels."""
    for ours, chars in groupby(text, _in_bundled):
        yield (bundled if ours else wide)(size), "".join(chars)


def _shown(char: str) -> str:
    if unicodedata.category(char) == "Zs":
        return char if _drawable(char) else " "
    if unicodedata.category(char) == "Cf":  # joiners, marks of direction
        return ""
    return char if _drawable(char) else f"[U+{ord(char):04X}]"


def _drawable(char: str) -> bool:
    return _in_bundled(char) or _has(wide(24), char)


@cache
def _in_bundled(char: str) -> bool:
    return _has(bundled(24), char)


@lru_cache(maxsize=4096)
def _has(font: ImageFont.FreeTypeFont, char: str) -> bool:
    return _glyph(font, char) != _glyph(font, NO_CHARACTER)


def _glyph(font: ImageFont.FreeTypeFont, char: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(char)
    return mask.size, bytes(mask)
