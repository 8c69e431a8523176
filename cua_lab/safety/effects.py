"""What one call of the computer tool does, in words.

    Call + ScreenContext ──recognise──▶ Effects (delete, send, open_site, type_secret, unknown, ...)

A call is judged by its parts: each key of a list, each character of a text, both ends of a drag.
Invariant: a call has at least one effect, and what cannot be recognised is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cua_lab.computer.schema import BUTTONS, Call
from cua_lab.desktop.screen_context import Element, Form, ScreenContext
from cua_lab.safety.effect_kinds import KINDS, Effect
from cua_lab.safety.element_effects import activated
from cua_lab.safety.key_effects import key_effects

__all__ = ["KINDS", "Effect", "Element", "Form", "ScreenContext", "recognise"]

LEFT, MIDDLE, RIGHT = BUTTONS["left"], BUTTONS["middle"], BUTTONS["right"]


def recognise(call: Call, context: ScreenContext, typed: str = "") -> tuple[Effect, ...]:
    """What this checked call does on a screen in this context; equal effects are named once.

    `typed` is what earlier calls have typed into the same field: a number or a command may come in
    pieces.
    """
    match call.action:
        case "screenshot" | "wait" | "finish":
            effects = [Effect("look", "looks at the screen")]
        case "move":
            effects = [Effect("move", "moves the pointer")]
        case "scroll":
            effects = [Effect("scroll", "turns the wheel")]
        case "click" | "double_click" | "triple_click":
            effects = list(_clicked(call, context))
        case "drag":
            effects = list(_dragged(call, context))
        case "type" | "press":
            effects = key_effects(call.chords, context, typed)
        case _:
            effects = [Effect("unknown", f"the action {call.action} is new to the gate")]
    return tuple(dict.fromkeys(effects)) or (Effect("press", "presses nothing"),)


def _clicked(call: Call, context: ScreenContext) -> Iterator[Effect]:
    if not context.known:
        yield Effect("unknown", f"a click on something that nobody can name: {context.why}")
    elif call.button == RIGHT:
        yield Effect("context_menu", "opens the menu of the right button")
    elif call.button == MIDDLE:
        link = context.pointed is not None and context.pointed.href
        kind = "open_window" if link else "paste"
        yield Effect(kind, "the middle button opens a link in a tab" if link else "pastes")
    elif call.button == LEFT:
        yield from activated(context.pointed, context)


def _dragged(call: Call, context: ScreenContext) -> Iterator[Effect]:
    if not context.known:
        yield Effect("unknown", f"a drag between things that nobody can name: {context.why}")
        return
    yield Effect("drag", f"drags {_named(context.pointed)} to {_named(context.dropped)}")
    if call.button != LEFT:
        yield Effect("context_menu", "drags with another button than the left one")
    if context.pointed == context.dropped:  # released where it was pressed: a click
        yield from activated(context.pointed, context)
    else:
        for end in (context.pointed, context.dropped):
            if end is not None and end.role == "unseen":
                yield Effect("unknown", f"one end of the drag is {end.words}")
        # What is dropped on a bin is deleted, on an address sent.
        target = context.dropped
        if target is not None and target.role not in ("textbox", "unseen"):
            named = replace(target, role="button", href="", form=None)
            yield from (e for e in activated(named, context) if e.kind not in ("click", "account"))


def _named(element: Element | None) -> str:
    return "the page" if element is None else element.words
