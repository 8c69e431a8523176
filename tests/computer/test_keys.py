"""Keys: names as models write them become keysyms, or nothing is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.computer.keys import (
    ALT,
    CONTROL,
    SHIFT,
    SUPER,
    UNICODE_KEYSYM,
    KeyNameError,
    char_keysym,
    parse_chord,
    type_keysyms,
)

ESCAPE, LEFT, PAGE_UP, PAGE_DOWN = 0xFF1B, 0xFF51, 0xFF55, 0xFF56
RETURN, TAB, BACKSPACE, DELETE = 0xFF0D, 0xFF09, 0xFF08, 0xFFFF


@pytest.mark.parametrize(
    ("name", "keysym"),
    [
        *((name, ESCAPE) for name in ("esc", "Esc", "escape", "ESCAPE", "<Escape>")),
        *((name, PAGE_UP) for name in ("pgup", "page_up", "PageUp", "page up", "Page-Up", "Prior")),
        *((name, PAGE_DOWN) for name in ("pgdn", "PageDown", "page_down", "Next")),
        *((name, LEFT) for name in ("left", "arrow_left", "ArrowLeft", "left arrow", "←")),
        *((name, RETURN) for name in ("enter", "Return", "RETURN", "newline")),
        *((name, BACKSPACE) for name in ("backspace", "bksp", "BackSpace")),
        *((name, DELETE) for name in ("del", "delete", "Delete")),
        *((name, ALT) for name in ("alt", "option", "Alt_L", "opt")),
        *((name, SUPER) for name in ("cmd", "command", "win", "super", "meta", "Super_L")),
        *((name, CONTROL) for name in ("ctrl", "Control", "control_l", "CTRL")),
        ("f1", 0xFFBE),
        ("F5", 0xFFC2),
        ("f12", 0xFFC9),
        ("caps_lock", 0xFFE5),
        ("space", 0x20),
        (" ", 0x20),
        ("KP_Enter", 0xFF8D),
        ("Numpad5", 0xFFB5),
        ("KeyA", ord("a")),
        ("Digit7", ord("7")),
        ("plus", ord("+")),
        ("minus", ord("-")),
        ("exclam", ord("!")),
        ("eacute", 0xE9),
        ("Eacute", 0xC9),
        ("A", ord("A")),
        (",", ord(",")),
        ("日", UNICODE_KEYSYM + 0x65E5),
    ],
)
def test_a_key_is_known_by_every_name_that_models_give_it(name: str, keysym: int) -> None:
    """The published reference tool: `esc f5 pgup del win option arrow_left` are KeyErrors."""
    assert parse_chord(name) == (keysym,)


@pytest.mark.parametrize(
    ("text", "chord"),
    [
        ("+", (ord("+"),)),
        ("ctrl++", (CONTROL, ord("+"))),
        ("ctrl+shift++", (CONTROL, SHIFT, ord("+"))),
        ("ctrl+-", (CONTROL, ord("-"))),
        ("ctrl+c", (CONTROL, ord("c"))),
        ("Ctrl + C", (CONTROL, ord("c"))),
        ("ctrl+C", (CONTROL, ord("c"))),
        ("ctrl+shift+t", (CONTROL, SHIFT, ord("T"))),
        ("shift+a", (SHIFT, ord("A"))),
        ("shift+1", (SHIFT, ord("!"))),
        ("shift+é", (SHIFT, 0xC9)),
        ("shift+ÿ", (SHIFT, UNICODE_KEYSYM + 0x178)),
        ("shift+д", (SHIFT, UNICODE_KEYSYM + 0x414)),
        ("ctrl+shift+ñ", (CONTROL, SHIFT, 0xD1)),
        ("shift+ß", (SHIFT, 0xDF)),
        ("shift+日", (SHIFT, UNICODE_KEYSYM + 0x65E5)),
        ("shift+left", (SHIFT, LEFT)),
        ("alt+f4", (ALT, 0xFFC1)),
        ("ctrl+ ", (CONTROL, 0x20)),
    ],
)
def test_a_plus_joins_a_chord_and_is_a_key_of_its_own(text: str, chord: tuple[int, ...]) -> None:
    """The published reference tool presses only Ctrl for `ctrl++` and nothing for `+`."""
    assert parse_chord(text) == chord


@pytest.mark.parametrize(
    "text", ["", "  ", "++", "+a", "ctrl+", "nope", "ctrl+nope", "a+a", "ctrl+control", "\x01"]
)
def test_what_is_not_a_key_is_refused_in_words(text: str) -> None:
    with pytest.raises(KeyNameError) as error:
        parse_chord(text)
    assert len(str(error.value)) > 20


def test_an_unknown_key_comes_with_the_names_that_exist_and_the_nearest_one() -> None:
    with pytest.raises(KeyNameError, match=r"unknown key 'escpe'.*'escape'.*enter esc tab"):
        parse_chord("escpe")


def test_control_characters_are_typed_as_the_keys_they_stand_for() -> None:
    """asyncvnc has no keysym for them: HUD raises after half the text was sent."""
    assert type_keysyms("a\tb\n\r\b") == (97, TAB, 98, RETURN, RETURN, BACKSPACE)
    assert type_keysyms("x\r\ny") == (120, RETURN, 121)


def test_characters_outside_of_latin_1_are_unicode_keysyms() -> None:
    """asyncvnc types `ok` of `ok日` and then raises KeyError."""
    assert type_keysyms("é日😀") == (0xE9, 0x10065E5, 0x101F600)


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x9f", "\ud800"])
def test_a_character_that_no_key_stands_for_is_refused(char: str) -> None:
    with pytest.raises(KeyNameError, match="cannot be typed"):
        type_keysyms(f"fine{char}")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))))
def test_all_printable_text_has_one_keysym_per_character(text: str) -> None:
    keysyms = type_keysyms(text)
    assert len(keysyms) == len(text)
    decoded = [chr(k - UNICODE_KEYSYM if k > UNICODE_KEYSYM else k) for k in keysyms]
    assert "".join(decoded) == text


@given(st.characters(exclude_categories=("Cc", "Cs")))
def test_any_single_character_is_a_key(char: str) -> None:
    (keysym,) = parse_chord(char)
    arrows_and_signs = "←↑→↓⇧⌃⌥⌘⏎↵↩⎋⇥⌫⌦⇞⇟"
    assert char in arrows_and_signs or keysym == char_keysym(char)


@given(st.text(max_size=12))
def test_any_text_is_a_chord_of_distinct_keysyms_or_an_error(text: str) -> None:
    try:
        chord = parse_chord(text)
    except KeyNameError:
        return
    assert len(set(chord)) == len(chord) >= 1
    assert all(0 < keysym < 1 << 32 for keysym in chord)
