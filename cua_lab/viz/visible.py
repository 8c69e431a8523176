"""Text that hides nothing: what would be invisible is shown by its code point.

A token, a key or a typed text may hold characters that draw nothing, turn the writing direction
(U+202E) or merge with their neighbours; each of them is shown as `‹U+202E›`. The one place for the
viewer, its static copy, figures, film strips and the report.

Invariant: two different texts look different, but for spaces in a label, and the result has no
control character, no lone surrogate and no line break.
"""

from __future__ import annotations

import unicodedata
from functools import cache

SIGNS = {"\n": "↵", "\t": "⇥", "\r": "␍"}
NOTHING = "∅"
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters, marks and symbols by category that draw nothing all the same."""
SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
"""Variation selectors: they only change the character before them."""
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
"""Categories: controls, formats, surrogates, private, unassigned, separators."""


def visible(text: str) -> str:
    """A token: spaces as dots, an empty one as `∅`."""
    return "".join("·" if c == " " else _shown(c) for c in text) or NOTHING


def visible_label(text: str) -> str:
    """Words for people, such as a caption: plain spaces stay."""
    return "".join(c if c == " " else _shown(c) for c in text)


def plot_text(text: str) -> str:
    """A label for matplotlib, whose own font has no glyph for everything and reads `$` as
    mathematics."""
    return "".join(c if ord(c) in _glyphs() else "□" for c in text).replace("$", r"\$")


@cache
def _shown(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    hidden = unicodedata.category(character) in HIDDEN or character in BLANK
    if hidden or any(code in selectors for selectors in SELECTORS):
        return f"‹U+{code:04X}›"
    return character


@cache
def _glyphs() -> frozenset[int]:
    """What DejaVu Sans can draw; anything else would be a warning and a crossed box."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap()) | {ord("\n"), ord("\t")}
