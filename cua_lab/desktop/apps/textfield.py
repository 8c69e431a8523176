"""A line of text with a caret: what a key does to it, as a pure function.

Invariant: the caret stands between two characters of the text, `0 <= caret <= len(text)`;
`selected` means the whole text, which the next character replaces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cua_lab.desktop import keysyms

LONGEST = 2000
"""Characters, as many as one call may type; more typing is ignored."""


@dataclass(frozen=True, slots=True)
class Field:
    """The text and where the caret stands."""

    text: str = ""
    caret: int = 0
    selected: bool = False

    def insert(self, text: str) -> Field:
        """Type at the caret, over the selection if there is one."""
        base = Field() if self.selected else self
        room = text[: LONGEST - len(base.text)]
        head, tail = base.text[: base.caret], base.text[base.caret :]
        return Field(head + room + tail, base.caret + len(room))

    def select_all(self) -> Field:
        return Field(self.text, len(self.text), bool(self.text))

    def edited(self, keysym: int) -> Field:
        """After an editing key; the same field for any other one."""
        text, caret = self.text, self.caret
        match keysym:
            case keysyms.BACKSPACE | keysyms.DELETE if self.selected:
                return Field()
            case keysyms.BACKSPACE if caret:
                return Field(text[: caret - 1] + text[caret:], caret - 1)
            case keysyms.DELETE:
                return Field(text[:caret] + text[caret + 1 :], caret)
            case keysyms.HOME:
                return Field(text, 0)
            case keysyms.END:
                return Field(text, len(text))
            case keysyms.LEFT:
                return Field(text, 0 if self.selected else max(0, caret - 1))
            case keysyms.RIGHT:
                return Field(text, min(len(text), caret + 1))
        return self

    def at(self, caret: int) -> Field:
        """With the caret moved."""
        return replace(self, caret=min(max(0, caret), len(self.text)), selected=False)
