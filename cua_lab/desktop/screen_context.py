"""What lies under the pointer and has the focus, where a desktop can tell.

    a point of the screen ──Looker──▶ ScreenContext (address, title, the two elements)

A screen that is served by this process registers a `Looker` under its RFB address; who drives the
screen may ask it. Invariant: what a desktop cannot tell is a context with `known` False and a
reason, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cua_lab.desktop.app import App

Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Form:
    """The form that an element belongs to."""

    action: str = ""
    """Where it is sent, an absolute address; empty for an app's own."""
    method: str = "get"
    button: str = ""
    """The name of its first button: what Enter presses."""
    secret: bool = False
    """Whether one of its fields is for a password or a card."""


@dataclass(frozen=True, slots=True)
class Element:
    """One thing on a screen, as accessibility names it."""

    role: str
    """ARIA's word: button, link, textbox, checkbox, ... `unseen` is something that the desktop
    cannot look into: another site's frame, a canvas, a plugin."""
    name: str = ""
    """The accessible name: what a screen reader says."""
    kind: str = ""
    """HTML's type of an input, `submit` of a button that sends a form, `multiline` of a text area;
    an autocomplete token such as `cc-number` wins over both."""
    href: str = ""
    """A link's address, absolute."""
    form: Form | None = None
    download: bool = False
    """Whether following the link saves a file."""

    @property
    def words(self) -> str:
        """For a reason: `the button "Pay now"`."""
        return f'the {self.role} "{self.name}"' if self.name else f"a {self.role} without a name"


@dataclass(frozen=True, slots=True)
class ScreenContext:
    """What a desktop says about itself at the moment of an action."""

    url: str = ""
    """The page's address; empty on the embedded desktop."""
    title: str = ""
    pointed: Element | None = None
    """Under the pointer; `None` is known to be nothing that reacts."""
    focused: Element | None = None
    """What has the keyboard; `None` is the page or the app as a whole."""
    known: bool = True
    """False: nothing above means anything."""
    dropped: Element | None = None
    """Under the end of a drag."""
    why: str = ""
    """Why it is not known."""


def unknown(why: str) -> ScreenContext:
    """The context of a desktop that cannot tell."""
    return ScreenContext(known=False, why=why)


class Looker(Protocol):
    """Asks a desktop what is at these pixels (an action's start and end) and what has the focus."""

    async def __call__(self, at: Point | None, to: Point | None) -> ScreenContext: ...


@runtime_checkable
class Described(Protocol):
    """An app that says what is on it."""

    def element_at(self, at: Point) -> Element | None:
        """What reacts to a click there."""

    def focused_element(self) -> Element | None:
        """What has the keyboard; `None` is the app as a whole."""


_lookers: dict[str, Looker] = {}


def register(url: str, looker: Looker) -> None:
    """Say who can look at the screen that is served at this RFB address of this process."""
    _lookers[url] = looker


def unregister(url: str) -> None:
    """Forget a screen that is closed."""
    _lookers.pop(url, None)


def looker_of(url: str) -> Looker:
    """Who can look at the screen at an RFB address; for one of another process, who says that
    nobody can."""
    return _lookers.get(url, _nobody)


async def _nobody(at: Point | None, to: Point | None) -> ScreenContext:
    return unknown("this desktop is in another process and cannot be asked what is on it")


def app_looker(app: Callable[[], App]) -> Looker:
    """The looker of an embedded desktop, whose app may change."""

    async def look(at: Point | None, to: Point | None) -> ScreenContext:
        now = app()
        title = type(now).__name__
        if not isinstance(now, Described):
            return unknown(f"the app {title} does not say what is on its screen")
        return ScreenContext(
            title=title,
            pointed=None if at is None else now.element_at(at),
            focused=now.focused_element(),
            dropped=None if to is None else now.element_at(to),
        )

    return look
