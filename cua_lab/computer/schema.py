"""One function, `computer`: its schema for the model, and its calls checked before they are sent.

    arguments (what the model said) ──parse_call──▶ Call (what will be sent) | CallError

Invariant: a `Call` is wholly valid: its points are pixels of the desktop, its keys are keysyms, its
waits are within the limits. A `CallError` says what was got and what is allowed, in plain text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cua_lab.computer.config import ToolConfig
from cua_lab.computer.coordinates import CoordinateError, View
from cua_lab.computer.keys import Chord, KeyNameError, parse_chord, type_keysyms

NAME = "computer"
BUTTONS = {"left": 1, "middle": 2, "right": 4}
CLICKS = {"click": 1, "double_click": 2, "triple_click": 3}
Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Arguments:
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_ARGUMENTS: dict[str, _Arguments] = {
    "screenshot": _Arguments(),
    "click": _Arguments(("x", "y"), ("button",)),
    "double_click": _Arguments(("x", "y"), ("button",)),
    "triple_click": _Arguments(("x", "y"), ("button",)),
    "move": _Arguments(("x", "y")),
    "drag": _Arguments(("x", "y", "to_x", "to_y"), ("button",)),
    "type": _Arguments(("text",)),
    "press": _Arguments(("keys",)),
    "scroll": _Arguments(("x", "y"), ("scroll_x", "scroll_y")),
    "wait": _Arguments((), ("seconds",)),
    "finish": _Arguments((), ("text",)),
}
_ORDER = ("x", "y", "to_x", "to_y", "button", "text", "keys", "scroll_x", "scroll_y", "seconds")
_HELP = {
    "screenshot": "screenshot: look.",
    "drag": "drag: from x, y to to_x, to_y.",
    "type": "type: text.",
    "press": "press: keys in order, + joins a chord (ctrl+c).",
    "scroll": "scroll: wheel clicks at x, y, positive is down and right.",
    "finish": "finish: the task is done.",
}


FOCUS_HELP = (
    "Keys go to whatever has the focus; before your first key, unless you have clicked, the middle"
    " of the screen is clicked once."
)
"""Said where `ToolConfig.focus_click` is on."""


class CallError(ValueError):
    """A call that was not sent: what was got and what is allowed."""


@dataclass(frozen=True, slots=True)
class Call:
    """A checked call in the terms of the wire."""

    action: str
    at: Point | None = None
    to: Point | None = None
    button: int = BUTTONS["left"]
    """RFB's pointer mask."""
    chords: tuple[Chord, ...] = ()
    """Keys to tap one after the other; of `type` as well as of `press`."""
    scroll: tuple[int, int] = (0, 0)
    """Wheel clicks to the right and down."""
    wait_s: float = 0.0
    text: str | None = None
    """The answer that came with `finish`."""


def tool_schema(config: ToolConfig, screen: tuple[int, int]) -> dict[str, Any]:
    """The OpenAI function for a desktop of this size; argument order is fixed, `action` first."""
    used = {name for a in config.actions for name in _names(a)}
    described = {"action": {"type": "string", "enum": list(config.actions)}}
    kinds = _kinds(config, screen)
    properties = described | {name: kinds[name] for name in _ORDER if name in used}
    about = " ".join(_HELP[action] for action in config.actions if action in _HELP)
    if config.focus_click and {"type", "press"} & set(config.actions):
        about = f"{about} {FOCUS_HELP}"
    return {
        "type": "function",
        "function": {
            "name": NAME,
            "description": f"Use the screen; shows it after each action. {about}".strip(),
            "parameters": {"type": "object", "properties": properties, "required": ["action"]},
        },
    }


def _names(action: str) -> tuple[str, ...]:
    return _ARGUMENTS[action].needs + _ARGUMENTS[action].takes


def _kinds(config: ToolConfig, screen: tuple[int, int]) -> dict[str, dict[str, Any]]:
    view = view_of(config, screen)
    number = "number" if view.space == "0-1" else "integer"
    x, y = ({"type": number, "minimum": 0, "maximum": limit} for limit in view.limits())
    wheel = {
        "type": "integer",
        "minimum": -config.max_scroll_clicks,
        "maximum": config.max_scroll_clicks,
    }
    return {
        "x": x,
        "y": y,
        "to_x": x,
        "to_y": y,
        "button": {"type": "string", "enum": list(BUTTONS)},
        "text": {"type": "string"},
        "keys": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": config.max_keys_per_call,
        },
        "scroll_x": wheel,
        "scroll_y": wheel,
        "seconds": {"type": "number", "maximum": config.max_wait_s},
    }


def view_of(config: ToolConfig, screen: tuple[int, int]) -> View:
    """The desktop as this configuration shows it."""
    return View(screen, config.screenshot_width, config.coordinate_space)


def parse_call(arguments: Mapping[str, Any], view: View, config: ToolConfig) -> Call:
    """Check a whole call; everything is known to be good before anything is sent."""
    action = _action(arguments, config)
    _check_names(action, arguments)
    try:
        return _Reader(arguments, view, config).call(action)
    except (CoordinateError, KeyNameError) as error:
        raise CallError(str(error)) from error


def _action(arguments: Mapping[str, Any], config: ToolConfig) -> str:
    allowed = ", ".join(config.actions)
    if "action" not in arguments:
        raise CallError(f"action is missing; allowed: {allowed}")
    action = arguments["action"]
    if not isinstance(action, str):
        raise CallError(f"action must be a string; got {_show(action)}; allowed: {allowed}")
    if action not in config.actions:
        close = difflib.get_close_matches(action, config.actions, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ";"
        raise CallError(f"unknown action {_show(action)}{hint} allowed: {allowed}")
    return action


def _check_names(action: str, arguments: Mapping[str, Any]) -> None:
    known = _names(action)
    takes = f"{action} takes {', '.join(known) if known else 'no arguments'}"
    unknown = [name for name in arguments if name != "action" and name not in known]
    if unknown:
        raise CallError(f"unknown argument {', '.join(map(_show, unknown))}; {takes}")
    missing = [name for name in _ARGUMENTS[action].needs if name not in arguments]
    if missing:
        raise CallError(f"{' and '.join(missing)} missing; {takes}")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the values of one call whose names are known to be right."""

    arguments: Mapping[str, Any]
    view: View
    config: ToolConfig

    def call(self, action: str) -> Call:
        match action:
            case "click" | "double_click" | "triple_click":
                return Call(action, at=self.point("x", "y"), button=self.button())
            case "move":
                return Call(action, at=self.point("x", "y"))
            case "drag":
                start, end = self.point("x", "y"), self.point("to_x", "to_y")
                return Call(action, at=start, to=end, button=self.button())
            case "type":
                return Call(action, chords=self.typed())
            case "press":
                return Call(action, chords=self.pressed())
            case "scroll":
                return Call(action, at=self.point("x", "y"), scroll=self.wheel())
            case "wait":
                return Call(action, wait_s=self.wait())
            case "finish":
                return Call(action, text=self.string("text", empty=True))
        return Call(action)

    def point(self, x: str, y: str) -> Point:
        return self.view.to_screen(self.arguments[x], self.arguments[y], names=(x, y))

    def button(self) -> int:
        button = self.arguments.get("button", "left")
        if not isinstance(button, str) or button not in BUTTONS:
            raise CallError(f"button must be one of {', '.join(BUTTONS)}; got {_show(button)}")
        return BUTTONS[button]

    def string(self, name: str, *, empty: bool = False) -> str | None:
        if name not in self.arguments:
            return None
        text = self.arguments[name]
        if not isinstance(text, str):
            raise CallError(f"{name} must be a string; got {_show(text)}")
        if not text and not empty:
            raise CallError(f"{name} is empty; give at least one character")
        if len(text) > self.config.max_text_chars:
            raise CallError(
                f"{name} has {len(text)} characters; at most {self.config.max_text_chars} in a call"
            )
        return text

    def typed(self) -> tuple[Chord, ...]:
        text = self.string("text")
        assert text is not None  # `_check_names` has seen it
        return tuple((keysym,) for keysym in type_keysyms(text))

    def pressed(self) -> tuple[Chord, ...]:
        keys, limit = self.arguments["keys"], self.config.max_keys_per_call
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise CallError(
                f'keys must be an array of strings such as ["ctrl+c"]; got {_show(keys)}'
            )
        if not 1 <= len(keys) <= limit:
            raise CallError(f"keys must have 1 to {limit} entries; got {len(keys)}")
        return tuple(parse_chord(key) for key in keys)

    def wheel(self) -> tuple[int, int]:
        x, y = self.clicks("scroll_x"), self.clicks("scroll_y")
        if x == y == 0:
            raise CallError("scroll_x or scroll_y must be other than 0: wheel clicks right or down")
        return x, y

    def clicks(self, name: str) -> int:
        value, limit = self.arguments.get(name, 0), self.config.max_scroll_clicks
        whole = _is_number(value) and value == int(value)
        if not whole or abs(value) > limit:
            raise CallError(
                f"{name} must be a whole number from -{limit} to {limit}; got {_show(value)}"
            )
        return int(value)

    def wait(self) -> float:
        seconds, limit = self.arguments.get("seconds", 1.0), self.config.max_wait_s
        if not _is_number(seconds) or seconds <= 0:
            raise CallError(f"seconds must be a number above 0; got {_show(seconds)}")
        return float(min(seconds, limit))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _show(value: Any) -> str:
    """A value as an error shows it: short, whatever a model has sent."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
