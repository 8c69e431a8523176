"""X11 keysyms as apps read them.

RFB sends keysyms, not characters. Latin-1 keysyms are their code point, `0x01000000 + code point`
says any other character, and older names (`EuroSign`, Cyrillic, ...) come from X11's table.
Invariant: `text_of` answers None for every key that types nothing.
"""

from __future__ import annotations

import unicodedata
from functools import cache

BACKSPACE, TAB, RETURN, ESCAPE, DELETE = 0xFF08, 0xFF09, 0xFF0D, 0xFF1B, 0xFFFF
HOME, LEFT, UP, RIGHT, DOWN, PAGE_UP, PAGE_DOWN, END = range(0xFF50, 0xFF58)
SHIFT_L, SHIFT_R, CONTROL_L, CONTROL_R = 0xFFE1, 0xFFE2, 0xFFE3, 0xFFE4
META_L, META_R, ALT_L, ALT_R, SUPER_L, SUPER_R = 0xFFE7, 0xFFE8, 0xFFE9, 0xFFEA, 0xFFEB, 0xFFEC
ISO_LEFT_TAB = 0xFE20
"""What many clients send for Shift+Tab."""

SHIFTS = frozenset({SHIFT_L, SHIFT_R})
COMMANDS = frozenset({CONTROL_L, CONTROL_R, META_L, META_R, ALT_L, ALT_R, SUPER_L, SUPER_R})
"""Modifiers under which a letter is a command and types nothing."""

_KEYPAD = {
    0xFF8D: RETURN,
    0xFF95: HOME,
    0xFF96: LEFT,
    0xFF97: UP,
    0xFF98: RIGHT,
    0xFF99: DOWN,
    0xFF9A: PAGE_UP,
    0xFF9B: PAGE_DOWN,
    0xFF9C: END,
    0xFF9F: DELETE,
    0xFF80: 0x20,
}
_US_SHIFTED = dict(zip("`1234567890-=[]\\;',./", '~!@#$%^&*()_+{}|:"<>?', strict=True))


def fold_keypad(keysym: int) -> int:
    """The keypad's keys as their plain twins; every other keysym as it is."""
    if 0xFFAA <= keysym <= 0xFFB9:  # the keypad's * + , - . / 0 ... 9
        return keysym - 0xFF80
    return _KEYPAD.get(keysym, keysym)


def text_of(keysym: int, shift: bool = False) -> str | None:
    """The character a key types, or None.

    Most clients send the shifted keysym (`A`, `!`) whether or not they also send Shift, so only
    an unshifted one changes: with Shift held, `a` types `A` and `1` types `!` (US layout).
    """
    text = _character(fold_keypad(keysym))
    if text is None or not shift:
        return text
    return _US_SHIFTED.get(text) or (text.upper() if len(text.upper()) == 1 else text)


def _character(keysym: int) -> str | None:
    if 0x20 <= keysym <= 0x7E or 0xA0 <= keysym <= 0xFF:
        return chr(keysym)
    if keysym >= 0x01000000:
        point = keysym - 0x01000000
        return chr(point) if point <= 0x10FFFF and _is_text(chr(point)) else None
    return _legacy().get(keysym)


@cache
def _legacy() -> dict[int, str]:
    from keysymdef import keysymdef  # asyncvnc's own table

    return {
        code: chr(point)
        for _, code, point in keysymdef
        if point and 0x100 <= code < 0xFE00 and _is_text(chr(point))
    }


def _is_text(char: str) -> bool:
    """Whether a character can be typed: all but control codes, surrogates and what Unicode has not
    assigned. Spaces of every width and joiners are text, as Persian and emoji need them
    (telegramdesktop/tdesktop#360)."""
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn")
