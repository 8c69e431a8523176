"""The kinds of effects that an action can have; policy files give each a risk.

Invariant: an `Effect` has one of these kinds and a detail in words.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS: dict[str, str] = {
    "look": "a screenshot or a wait",
    "move": "the pointer, the caret or the focus moves, nothing is pressed",
    "scroll": "the wheel turns",
    "click": "a click on something that is none of the below",
    "press": "a key that is none of the below",
    "type": "text into a known field",
    "edit": "undo, copy, cut, select, delete a character, bold",
    "drag": "something is dragged",
    "paste": "the clipboard goes into a field, and nobody has read it",
    "follow_link": "a link to another page of the same site",
    "reload": "the page is loaded again, or the one before it",
    "context_menu": "the browser's own menu opens; what is clicked in it cannot be seen",
    "address_bar": "the browser's own field for addresses takes the keyboard",
    "query": "a form that only asks is sent to its own site (method GET)",
    "submit_form": "any other form is sent",
    "open_site": "a page of another site is opened",
    "open_window": "another window or tab, or a dialog of the browser",
    "close_window": "a window or tab is closed",
    "quit": "a program is ended, or the session",
    "delete": "something is deleted",
    "send": "a message is sent, a text published, a file shared",
    "pay": "money moves, or a purchase",
    "install": "software is installed or run",
    "download": "a file is saved",
    "upload": "a file is chosen to be sent",
    "grant": "a permission is given",
    "account": "an account is opened, entered or changed",
    "type_secret": "a password, a key or a code is typed",
    "type_card": "a card's number is typed",
    "shell_command": "text that a shell would run",
    "devtools": "the browser's developer tools",
    "unknown": "cannot be recognised",
}
"""Every kind of effect, from harmless to grave, and what it means."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that an action does."""

    kind: str
    detail: str
    """In words: `the button "Delete" on shop.test`."""
    text: str = ""
    """What was typed, or the address that is opened: policies match patterns and hosts with it."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"effect kind {self.kind!r} is none of {', '.join(KINDS)}")
