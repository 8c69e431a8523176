"""What a list of keys does: shortcuts, Enter and Space on the focus, and the text that they type.

    chords + context ──key_effects──▶ Effects

Keys are read in order, as keysyms, after all aliases. Where the focus goes within a call cannot be
looked at: after Tab, or after a key that may change the page, Enter and text go to a place that
nobody knows, which is `unknown`. Invariant: no key is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cua_lab.computer.keys import MODIFIERS, Chord
from cua_lab.desktop import keysyms
from cua_lab.desktop.screen_context import Element, ScreenContext
from cua_lab.safety.effect_kinds import Effect
from cua_lab.safety.element_effects import TYPED_INTO, activated, sent
from cua_lab.safety.typed_text import text_effects

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTERS = frozenset({0xFF0D, 0xFF8D, 0xFF0A, 0xFE34, 0xFD1E})
"""Return, the keypad's Enter, Linefeed, ISO Enter and the terminal's."""
TABS = frozenset({0xFF09, 0xFF89, 0xFE20})
MOVES = frozenset({*range(0xFF50, 0xFF59), *range(0xFF95, 0xFF9E)})
LOCKS = frozenset({0xFFE5, 0xFF7F, 0xFF14, 0xFE01})
ADDRESS_BAR = Element("address bar", "address", "url")
_HELD = {**MODIFIERS, 0xFFE7: "super", 0xFFE8: "super", 0xFE03: "altgr", 0xFE11: "altgr"}

_CLOSES = {"ctrl+w", "ctrl+f4", "ctrl+shift+w"}
_QUITS = {"ctrl+q", "ctrl+shift+q", "alt+f4", "super+q", "ctrl+alt+delete", "ctrl+alt+backspace"}
_BAR = {"ctrl+l", "ctrl+k", "ctrl+e", "alt+d", "f6"}
_TOOLS = {"f12", "ctrl+shift+i", "ctrl+shift+j", "ctrl+shift+c", "ctrl+shift+k", "ctrl+u"}
_WINDOWS = {
    *("ctrl+t", "ctrl+n", "ctrl+shift+n", "ctrl+shift+t", "ctrl+h", "ctrl+j", "ctrl+o", "ctrl+p"),
    *("ctrl+shift+p", "ctrl+d", "ctrl+shift+d", "ctrl+shift+o", "ctrl+shift+b", "f1", "f10"),
}  # fmt: skip
_RELOADS = {"f5", "ctrl+r", "ctrl+shift+r", "ctrl+f5", "alt+left", "alt+right", "alt+home"}
_EDITS = {
    *("ctrl+a", "ctrl+b", "ctrl+c", "ctrl+i", "ctrl+x", "ctrl+y", "ctrl+z", "ctrl+shift+z"),
    *("ctrl+insert", "shift+delete", "ctrl+backspace", "ctrl+delete", "backspace", "delete"),
    *("shift+backspace", "insert"),
}  # fmt: skip
_PASTES = {"ctrl+v", "ctrl+shift+v", "shift+insert"}
_MENUS = {"menu", "shift+f10"}
_SHORTCUTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_CLOSES, ("close_window", "closes a window or tab")),
    **dict.fromkeys(_QUITS, ("quit", "ends a program or the session")),
    **dict.fromkeys(_TOOLS, ("devtools", "opens developer tools")),
    **dict.fromkeys(_WINDOWS, ("open_window", "opens a window, a tab or a dialog")),
    **dict.fromkeys(_RELOADS, ("reload", "loads a page again")),
    **dict.fromkeys(_MENUS, ("context_menu", "opens a menu")),
    "ctrl+s": ("download", "saves the page"),
    "ctrl+shift+delete": ("delete", "deletes what the browser remembers"),
    "ctrl+enter": ("send", "sends what is written"),
    "alt+enter": ("open_window", "opens in a new tab"),
    "super+enter": ("send", "sends what is written"),
    **{f"ctrl+{n}": ("press", "another tab, or zoom") for n in [*"0123456789", "+", "-", "="]},
    **dict.fromkeys(("ctrl+tab", "ctrl+pageup", "ctrl+pagedown"), ("press", "another tab")),
    **dict.fromkeys(("ctrl+f", "ctrl+g", "f3"), ("press", "finds text in the page")),
    **dict.fromkeys(("escape", "f11"), ("press", "leaves what is open, or the full screen")),
    "printscreen": ("press", "takes a picture of the screen"),
}
_NAMES = {
    0xFFC8: "f11", 0xFF1B: "escape", 0xFF08: "backspace", 0xFFFF: "delete", 0xFF9F: "delete",
    0xFF63: "insert", 0xFF9E: "insert", 0xFF51: "left", 0xFF53: "right", 0xFF50: "home",
    0xFF55: "pageup", 0xFF56: "pagedown", 0xFF67: "menu", 0xFF61: "printscreen",
}  # fmt: skip
UNSURE = frozenset(
    {"close_window", "quit", "devtools", "open_window", "reload", "send", "context_menu"}
)
"""After these, in the same call, nobody knows what has the focus."""
MENU = "a menu or a dialog of the browser may be open, and the page lies under it"


def key_effects(chords: Iterable[Chord], context: ScreenContext, typed: str) -> list[Effect]:
    """What these keys do, in order."""
    reader = _Reader(context, context.focused, context.known, context.why, text=typed)
    for chord in chords:
        reader.read(chord)
    reader.finish()
    return reader.effects


def text_of_chords(chords: Iterable[Chord]) -> str:
    """The characters that these keys type, Enter as a line end and Backspace as itself."""
    text = ""
    for chord in chords:
        held, keys = _parts(chord)
        if held - {"shift"}:
            continue
        for key in keys:
            if key in ENTERS:
                text += "\n"
            elif key == keysyms.BACKSPACE:
                text = text[:-1]
            else:
                text += keysyms.text_of(key, "shift" in held) or ""
    return text


def _parts(chord: Chord) -> tuple[frozenset[str], list[int]]:
    held = frozenset(_HELD[key] for key in chord if key in _HELD)
    return held, [key for key in chord if key not in _HELD]


@dataclass(slots=True)
class _Reader:
    """Walks through the keys of one call."""

    context: ScreenContext
    focus: Element | None
    sure: bool
    why: str
    text: str
    """What stands in the field so far, as far as the gate has seen it typed."""
    effects: list[Effect] = field(default_factory=list)
    fresh: bool = False
    """Whether something was typed that was not judged yet."""

    def read(self, chord: Chord) -> None:
        if self.fresh and len(chord) == 1 and 0x21 <= chord[0] <= 0x7E:
            self.text += chr(chord[0])  # one more letter of a text: 0.1 us instead of 15
            return
        held, keys = _parts(chord)
        if held - {"shift"} or not all(keysyms.text_of(key) for key in keys):
            self.finish()
        if not keys:
            self._only_modifiers(held)
        for key in keys:
            self._key(held, key)

    def finish(self) -> None:
        """Judge the text that was typed up to here, as a whole."""
        if self.fresh:
            self.effects += text_effects(self.text, self.focus if self.sure else None)
            self.fresh = False

    def _only_modifiers(self, held: frozenset[str]) -> None:
        if held <= {"shift", "ctrl"}:
            self._add("press", "presses a modifier alone")
        else:
            self._unknown(f"{'+'.join(sorted(held))} alone may open a menu of the system")

    def _key(self, held: frozenset[str], key: int) -> None:
        name = _name(held, key)
        if name in _BAR:
            self._add("address_bar", f"{name} goes to the address bar")
            self.focus, self.sure, self.text = ADDRESS_BAR, True, ""
        elif name in _PASTES:
            self._add("paste", f"{name} pastes into {self._place()}")
            self.sure, self.why = False, "what was pasted is not known"
        elif name in _EDITS:
            self._edit(name)
        elif name in _SHORTCUTS:
            self._shortcut(name)
        elif key in MOVES and held <= {"shift", "ctrl"}:
            self._add("move", "moves the caret, the choice or the page")
        elif key in LOCKS:
            self._add("press", "a lock key")
        elif key in TABS and held <= {"shift"}:
            self._add("move", "moves the focus")
            self.sure, self.why, self.text = False, "Tab moved the focus within the call", ""
        elif key in ENTERS and held <= {"shift"}:
            self._enter()
        elif held <= {"shift"} and (typed := keysyms.text_of(key, "shift" in held)):
            self._type(typed)
        else:
            self._unknown(f"the key {name} does something that nobody can name")

    def _edit(self, name: str) -> None:
        if name == "backspace":
            self.text = self.text[:-1]
        if not self.sure:
            self._unknown(f"{name}, but {self.why}")
        elif name == "delete" and not _typed_into(self.focus):
            self._add("delete", f"Delete on {self._place()}")
        else:
            self._add("edit", f"{name} in {self._place()}")

    def _shortcut(self, name: str) -> None:
        kind, words = _SHORTCUTS[name]
        self._add(kind, f"{name} {words}")
        if kind in UNSURE:
            self.sure, self.why, self.text = False, f"{name} came before in the call", ""

    def _enter(self) -> None:
        if not self.sure:
            self._unknown(f"Enter, but {self.why}")
            return
        focus, self.text = self.focus, self.text + "\n"
        if focus is not None and focus.kind == "multiline":
            self._add("type", f"a new line in {focus.words}")
            return
        self._pressed(focus)
        self.sure, self.why = False, "Enter came before in the call"

    def _pressed(self, focus: Element | None) -> None:
        if focus is ADDRESS_BAR or (focus is not None and focus.role == "address bar"):
            address = self.text.strip()
            self._add("open_site", f"opens {address[:200] or 'an address'}", _as_url(address))
        elif focus is None:
            self._add("press", "Enter on the page")
        elif _typed_into(focus) and focus.form is None:
            self._add("press", f"Enter in {focus.words}")
        elif _typed_into(focus) and focus.form is not None:
            self.effects += sent(focus.form, self.context, f"Enter in {focus.words}")
        else:
            self.effects += activated(focus, self.context)

    def _type(self, typed: str) -> None:
        if not self.sure:
            self.text, self.fresh = self.text + typed, True
            self._unknown(f"text, but {self.why}")
            return
        focus = self.focus
        if focus is not None and focus.role == "unseen":
            self._unknown(f"text into {focus.words}")
        elif typed == " " and focus is not None and not _typed_into(focus):
            self.effects += activated(focus, self.context)  # Space presses what is no field
            self.sure, self.why = False, "Space came before in the call"
            return
        elif _typed_into(focus):
            self._add("type", f"text into {self._place()}")
        else:
            self._add("press", f"a letter, perhaps a shortcut of {self._place()}")
        self.text, self.fresh = self.text + typed, True

    def _place(self) -> str:
        return "the page" if self.focus is None else self.focus.words

    def _unknown(self, detail: str) -> None:
        self._add("unknown", detail)

    def _add(self, kind: str, detail: str, text: str = "") -> None:
        if not self.effects or self.effects[-1].detail != detail:  # a text has many letters
            self.effects.append(Effect(kind, detail, text))


def _typed_into(focus: Element | None) -> bool:
    return focus is not None and (focus.role in TYPED_INTO or focus.kind == "multiline")


def _name(held: frozenset[str], key: int) -> str:
    """`ctrl+shift+w` of whichever keys; the modifiers in one order."""
    folded = keysyms.fold_keypad(key)
    if key in ENTERS:
        base = "enter"
    elif key in TABS:
        base = "tab"
    elif 0xFFBE <= key <= 0xFFD5:
        base = f"f{key - 0xFFBD}"
    else:
        base = _NAMES.get(key) or (keysyms.text_of(folded) or f"0x{key:x}").lower()
    order = [name for name in ("ctrl", "alt", "shift", "super", "altgr") if name in held]
    return "+".join([*order, base])


def _as_url(address: str) -> str:
    return address if "://" in address else f"https://{address}"
