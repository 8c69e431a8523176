"""Keys as models name them -> X11 keysyms, the numbers that RFB key events carry.

    press ["ctrl+a", "left", "+"]  ->  ((Control_L, a), (Left,), (plus,))
    type  "ok日\n"                  ->  (o, k, 0x01000000 + U+65E5, Return)

A chord is a tuple of keysyms that are held together: pressed in order, released in reverse.
Invariant: a function here returns keysyms for the whole text, or raises `KeyNameError` and nothing
was sent. Names ignore case, `_`, `-` and spaces, so `Page_Up`, `page up` and `PAGEUP` are one key.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

Chord = tuple[int, ...]

UNICODE_KEYSYM = 0x01000000
SHIFT, CONTROL, ALT, SUPER = 0xFFE1, 0xFFE3, 0xFFE9, 0xFFEB
MODIFIERS = {
    SHIFT: "shift",
    0xFFE2: "shift",
    CONTROL: "ctrl",
    0xFFE4: "ctrl",
    ALT: "alt",
    0xFFEA: "alt",
    SUPER: "super",
    0xFFEC: "super",
}

# Every spelling that a model has been seen to use, already folded (see `_fold`).
_NAMES: dict[int, str] = {
    SHIFT: "shift shiftl shiftleft leftshift lshift ⇧",
    0xFFE2: "shiftr shiftright rightshift rshift",
    CONTROL: "ctrl control ctl controll ctrll controlleft ctrlleft leftctrl lctrl leftcontrol ⌃",
    0xFFE4: "controlr ctrlr controlright ctrlright rightctrl rctrl rightcontrol",
    ALT: "alt altl altleft leftalt lalt option opt optionleft ⌥",
    0xFFEA: "altr altright rightalt ralt optionright",
    0xFE03: "altgr altgraph isolevel3shift",
    SUPER: "super superl meta metal metaleft cmd command commandleft win windows winleft lwin "
    "leftwin windowskey os osleft ⌘",
    0xFFEC: "superr metar metaright commandright winright rwin rightwin osright",
    0xFF0D: "enter return ret newline carriagereturn cr enterkey returnkey ⏎ ↵ ↩",
    0xFF8D: "kpenter numpadenter numenter",
    0xFF1B: "esc escape ⎋",
    0xFF09: "tab tabkey ⇥",
    0x0020: "space spacebar spacekey",
    0xFF08: "backspace bksp bkspc bs backspacekey ⌫",
    0xFFFF: "delete del forwarddelete deletekey ⌦",
    0xFF63: "insert ins",
    0xFF50: "home",
    0xFF57: "end",
    0xFF55: "pageup pgup prior ⇞",
    0xFF56: "pagedown pgdn pgdown pagedn next ⇟",
    0xFF51: "left arrowleft leftarrow cursorleft arrowkeyleft ←",
    0xFF52: "up arrowup uparrow cursorup arrowkeyup ↑",
    0xFF53: "right arrowright rightarrow cursorright arrowkeyright →",
    0xFF54: "down arrowdown downarrow cursordown arrowkeydown ↓",
    0xFFE5: "capslock caps",
    0xFF7F: "numlock",
    0xFF14: "scrolllock",
    0xFF61: "printscreen print prtsc prtscr prntscrn printscrn prtscn snapshot",
    0xFF13: "pause break pausebreak",
    0xFF67: "menu contextmenu apps application",
    0x002B: "plus",
    0x002D: "minus hyphen dash",
    0x003D: "equal equals",
    0x002C: "comma",
    0x002E: "period dot",
    0x002F: "slash",
    0x005C: "backslash",
    0x003B: "semicolon",
    0x0027: "quote apostrophe singlequote",
    0x0022: "quotedbl doublequote",
    0x0060: "backquote grave backtick",
    0x005B: "bracketleft leftbracket",
    0x005D: "bracketright rightbracket",
    0x005F: "underscore",
    0xFFAB: "kpadd numpadadd add",
    0xFFAD: "kpsubtract numpadsubtract subtract",
    0xFFAA: "kpmultiply numpadmultiply multiply",
    0xFFAF: "kpdivide numpaddivide divide",
    0xFFAE: "kpdecimal numpaddecimal decimal",
}
_SHIFTED = dict(zip("`1234567890-=[]\\;',./", '~!@#$%^&*()_+{}|:"<>?', strict=True))
# What a model is told when it names a key that does not exist.
COMMON_NAMES = (
    "enter esc tab space backspace delete insert home end pageup pagedown left up right down "
    "f1-f24 ctrl alt shift super, or any single character"
)


class KeyNameError(ValueError):
    """A key or a character that no keysym stands for: got, and what is allowed."""


def type_keysyms(text: str) -> tuple[int, ...]:
    """The keysyms that type `text`: one per character, a line end of two characters counts once."""
    return tuple(char_keysym(char) for char in text.replace("\r\n", "\n"))


def char_keysym(char: str) -> int:
    """The keysym of one character: Latin-1 is its own keysym, the rest 0x01000000 + code point."""
    control = {"\t": 0xFF09, "\n": 0xFF0D, "\r": 0xFF0D, "\b": 0xFF08}
    if char in control:
        return control[char]
    code = ord(char)
    if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF:
        return code
    if code < 0xA0 or 0xD800 <= code <= 0xDFFF:
        raise KeyNameError(
            f"the character U+{code:04X} cannot be typed: text may hold any printable character, "
            "tab, line feed and backspace"
        )
    return UNICODE_KEYSYM + code


def parse_chord(text: str) -> Chord:
    """One entry of a key list: a key, or keys joined by `+`; `+` and `ctrl++` mean the plus key."""
    parts = _split(text)
    keysyms = [_key(part, of=text) for part in parts]
    if len(set(keysyms)) < len(keysyms):
        raise KeyNameError(f"{text!r} names one key twice: list the keys one by one to repeat them")
    return _as_typed(keysyms) if len(keysyms) > 1 else tuple(keysyms)


def _split(text: str) -> list[str]:
    if text == "+":
        return ["+"]
    parts = [*text[:-2].split("+"), "+"] if text.endswith("++") else text.split("+")
    parts = [part if len(part) == 1 else part.strip() for part in parts]
    if "" in parts:
        raise KeyNameError(
            "the key is empty: name one, such as 'enter'"
            if not text.strip()
            else f"{text!r} has an empty part: a chord is keys joined by '+', such as 'ctrl+c'; "
            "the plus key is '+', with ctrl 'ctrl++'"
        )
    return parts


def _as_typed(keysyms: list[int]) -> Chord:
    """Letters of a chord in the case that a keyboard gives: shift+a is A, ctrl+C is ctrl+c.

    An X server types the keysym it is sent: `a` while shift is held makes it let go of shift, and
    `C` with ctrl makes it add shift.
    """
    held = {MODIFIERS.get(keysym) for keysym in keysyms}
    if "shift" in held:
        return tuple(_shifted(keysym) for keysym in keysyms)
    if held - {None}:
        return tuple(ord(chr(k).lower()) if 0x41 <= k <= 0x5A else k for k in keysyms)
    return tuple(keysyms)


def _shifted(keysym: int) -> int:
    """What a key types with Shift: `é` has its capital `É`, `1` its `!`, `ß` and `left` nothing
    else."""
    if 0x20 <= keysym <= 0xFF:
        char = chr(keysym)
    elif keysym > UNICODE_KEYSYM:
        char = chr(keysym - UNICODE_KEYSYM)
    else:
        return keysym
    capital = _SHIFTED.get(char) or char.upper()
    return char_keysym(capital) if len(capital) == 1 else keysym


def _key(name: str, *, of: str) -> int:
    names = _by_folded_name()
    if len(name) == 1:
        return names[name] if name in names else char_keysym(name)
    folded = _fold(name)
    if folded in names:
        return names[folded]
    exact, loose = _x11_names()
    if name in exact:
        return exact[name]
    if folded in loose:
        return loose[folded]
    close = difflib.get_close_matches(folded, [n for n in names if len(n) > 1], n=1)
    hint = f", did you mean {close[0]!r}?" if close else "."
    where = "" if name == of else f" in {of!r}"
    raise KeyNameError(f"unknown key {name!r}{where}{hint} Allowed: {COMMON_NAMES}")


def _fold(name: str) -> str:
    """Lower case without separators or `<...>`: `Page_Up`, `page-up` and `<PgUp>` style names."""
    if len(name) > 2 and name[0] == "<" and name[-1] == ">":
        name = name[1:-1]
    return re.sub(r"[\s_-]+", "", name).lower()


@cache
def _by_folded_name() -> dict[str, int]:
    names = {name: keysym for keysym, row in _NAMES.items() for name in row.split()}
    names |= {f"f{n}": 0xFFBD + n for n in range(1, 25)}
    for digit in range(10):
        names |= {f"{pad}{digit}": 0xFFB0 + digit for pad in ("kp", "numpad", "num")}
        names[f"digit{digit}"] = ord(str(digit))
    names |= {f"key{letter}": ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz"}
    return names


@cache
def _x11_names() -> tuple[dict[str, int], dict[str, int]]:
    """X11's own names, as written and folded; single characters are keys of their own."""
    from keysymdef import keysymdef

    exact = {
        name: keysym for name, keysym, _ in keysymdef if len(name) > 1 and name != "VoidSymbol"
    }
    loose: dict[str, int] = {}
    # `eacute` before `Eacute`: of names that fold together, the lower-case letter is the key.
    for name, keysym in sorted(exact.items(), key=lambda item: item[0], reverse=True):
        loose.setdefault(_fold(name), keysym)
    return exact, loose
