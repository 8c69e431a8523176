"""One PyAutoGUI call: its name, and its arguments by the names of PyAutoGUI's own signatures.

Invariant: an argument is never dropped and never guessed: what a signature has no place for is a
`LabError`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from cua_lab.errors import LabError

Point = list[Any]
"""[x, y] as written."""

_CLICK = "x y interval duration tween logScreenshot _pause"
_TWICE = "x y interval button duration tween logScreenshot _pause"
_WHEEL = "clicks x y logScreenshot _pause"
_BY = "xOffset yOffset duration tween logScreenshot _pause"
_DRAG = "duration tween button logScreenshot _pause mouseDownUp"
_HOLD = "x y button duration tween logScreenshot _pause"
_WRITE = "message interval logScreenshot _pause"
SIGNATURES = {
    name: tuple(parameters.split())
    for name, parameters in {
        "click": "x y clicks interval button duration tween logScreenshot _pause",
        "leftClick": _CLICK,
        "rightClick": _CLICK,
        "middleClick": _CLICK,
        "doubleClick": _TWICE,
        "tripleClick": _TWICE,
        "triple_click": _TWICE,
        "moveTo": "x y duration tween logScreenshot _pause",
        "move": _BY,
        "moveRel": _BY,
        "dragTo": f"x y {_DRAG}",
        "drag": f"xOffset yOffset {_DRAG}",
        "dragRel": f"xOffset yOffset {_DRAG}",
        "mouseDown": _HOLD,
        "mouseUp": _HOLD,
        "scroll": _WHEEL,
        "vscroll": _WHEEL,
        "hscroll": _WHEEL,
        "press": "keys presses interval logScreenshot _pause",
        "keyDown": "key logScreenshot _pause",
        "keyUp": "key logScreenshot _pause",
        "write": _WRITE,
        "typewrite": _WRITE,
        "sleep": "seconds",
        "countdown": "seconds",
        "wait": "seconds",
        "terminate": "status",
        "answer": "answer",
    }.items()
}
"""PyAutoGUI 0.9.54's parameters in their order, and those of the published `computer` calls."""
SAME = {
    ("press", "key"): "keys",
    ("write", "text"): "message",
    ("typewrite", "text"): "message",
    ("answer", "text"): "answer",
    ("scroll", "amount"): "clicks",
    ("vscroll", "amount"): "clicks",
    ("hscroll", "amount"): "clicks",
}
"""Names that published files use for a parameter."""
CONSTANTS = {
    "LEFT": "left",
    "MIDDLE": "middle",
    "RIGHT": "right",
    "PRIMARY": "primary",
    "SECONDARY": "secondary",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call with plain arguments."""

    name: str
    args: tuple[Any, ...]
    """Positional arguments where there is no signature to name them (`hotkey`)."""
    given: dict[str, Any]
    """Arguments by name; those left out are absent, not their default."""
    source: str
    """The call as written, for messages."""

    def need(self, parameter: str) -> Any:
        """An argument that the call cannot do without."""
        if parameter not in self.given:
            raise LabError(f"{self.name} lacks its {parameter}")
        return self.given[parameter]

    def rest(self, *taken: str) -> dict[str, Any]:
        """The arguments that have no place in our fields."""
        return {key: value for key, value in self.given.items() if key not in taken}


def read_call(node: ast.expr) -> Call:
    """A call of the code, its arguments named."""
    source = ast.unparse(node)[:80]
    if not isinstance(node, ast.Call):
        raise LabError(f"{source!r} is not a call")
    name = ast.unparse(node.func).rsplit(".", 1)[-1]
    try:
        args = [_value(arg) for arg in node.args]
        named = {word.arg or "": _value(word.value) for word in node.keywords}
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise LabError(f"{source!r} has arguments that are not plain values") from error
    if "" in named:
        raise LabError(f"{source!r} unpacks its arguments; write them out")
    if name not in SIGNATURES:
        return Call(name, tuple(args), named, repr(source))
    return Call(name, (), _bound(name, args, named, source), repr(source))


def _bound(name: str, args: list[Any], named: dict[str, Any], source: str) -> dict[str, Any]:
    parameters = SIGNATURES[name]
    if len(args) > len(parameters):
        raise LabError(f"{source!r} has {len(args)} arguments; {name} takes {len(parameters)}")
    given = dict(zip(parameters, args, strict=False))
    for key, value in named.items():
        known = SAME.get((name, key), key)
        if known in given:
            raise LabError(f"{source!r} says {known} twice")
        given[known] = value
    return given


def _value(node: ast.expr) -> Any:
    """A plain value; a name of PyAutoGUI's (`pyautogui.RIGHT`, an easing function) as its text."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = ast.unparse(node).rsplit(".", 1)[-1]
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name == "linear" or name.startswith("ease"):
            return name
    return ast.literal_eval(node)


def point_of(call: Call, at: Point | None) -> Point | None:
    """Where a call acts: its x and y, one of them with the pointer's other, or the pointer."""
    x, y = call.given.get("x"), call.given.get("y")
    if isinstance(x, (list, tuple)):
        if y is not None or len(x) not in (2, 4):
            raise LabError(f"{call.source} has x={x!r} and y={y!r}; expected one pair of numbers")
        x, y = x if len(x) == 2 else (x[0] + x[2] / 2, x[1] + x[3] / 2) if _plain(*x) else (x, None)
    if x is None and y is None:
        return at
    if isinstance(x, str):
        raise LabError(f"{call.source} looks for a picture; expected two numbers")
    if x is None or y is None:
        if at is None:
            raise LabError("a pointer action has no x and y; the sample would not say where")
        x, y = (at[0], y) if x is None else (x, at[1])
    if not _plain(x, y):
        raise LabError(f"{call.source} has x={x!r} and y={y!r}; expected two numbers")
    return [x, y]


def _plain(*values: Any) -> bool:
    return all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9
        for value in values
    )
