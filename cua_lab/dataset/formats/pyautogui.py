"""PyAutoGUI lines, as AgentNet and Aguvis write actions, as our action fields.

| code                                        | ours                                      |
|---------------------------------------------|-------------------------------------------|
| `click(x, y, clicks, interval, button)`     | click; clicks=2, 3: double_, triple_click |
| `leftClick`, `doubleClick`, `tripleClick`   | click, double_click, triple_click         |
| `rightClick`, `middleClick`                 | click with `button`                       |
| `computer.triple_click(x=, y=)`             | triple_click                              |
| `moveTo(a)`, `move(dx, dy)`                 | move, or the place of what follows        |
| `dragTo(b)`, `drag(dx, dy)` after a place a | drag from a to b                          |
| `mouseDown(a)`, ..., `mouseUp(b)`           | drag from a to b; a click where a is b    |
| `write(message)`, `typewrite`               | type; a list of keys: key                 |
| `press(keys, presses)`                      | key, one entry a press                    |
| `hotkey('ctrl', 'c')`, `keyDown`, `keyUp`   | key, `["ctrl+c"]`                         |
| `scroll(n)`, `vscroll`, `hscroll(n)`        | scroll up/down, left/right, amount abs    |
| `computer.wait()`, `time.sleep(n)`          | wait                                      |
| `computer.terminate(status=)`, `answer(..)` | finish with `status` or `answer`          |

The code is parsed, never run. Arguments are read by the signatures of PyAutoGUI 0.9.54, so
positional ones mean what they mean there; those without a place in ours (`interval`, `duration`,
...) are kept by name. A call without a point acts where the lines before it left the pointer. A
line that is none of these, or that does nothing (`scroll(0)`, `clicks=0`), is a `LabError`.

Invariant: a coordinate leaves as it was written; its space is the caller's to declare.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from cua_lab.dataset.formats.pyautogui_calls import Call, Point, point_of, read_call
from cua_lab.errors import LabError

Action = dict[str, Any]
_POINTED = {
    "click": "click",
    "leftClick": "click",
    "rightClick": "click",
    "middleClick": "click",
    "doubleClick": "double_click",
    "tripleClick": "triple_click",
    "triple_click": "triple_click",
}
_CLICKS = {1: "click", 2: "double_click", 3: "triple_click"}
_BUTTONS = {
    "left": None,
    "primary": None,
    "middle": "middle",
    "right": "right",
    "secondary": "right",
}
_BUTTON_NUMBERS = {1: "left", 2: "middle", 3: "right"}


def parse_actions(code: str) -> list[Action]:
    """Our action fields for each action of a piece of code, in order."""
    return parse_step(code, None)[0]


def parse_step(code: str, at: Point | None) -> tuple[list[Action], Point | None]:
    """The actions of one step of a task, and where it leaves the pointer that it found `at`."""
    hand = _Hand(at=at)
    for node in _statements(code):
        hand.do(read_call(node))
    hand.finish()
    return hand.actions, hand.at


def _statements(code: str) -> list[ast.expr]:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise LabError(f"cannot parse the action {code[:80]!r}: {error}") from error
    kept = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    if not all(isinstance(node, ast.Expr) for node in kept):
        raise LabError(f"the action {code[:80]!r} is more than calls; it cannot be converted")
    return [node.value for node in kept if isinstance(node, ast.Expr)]


@dataclass
class _Hand:
    """Where the pointer is and what is held down while the lines are read, top to bottom."""

    actions: list[Action] = field(default_factory=list)
    at: Point | None = None
    """The pointer; `None` until a line says where."""
    pressed: tuple[Point, Action] | None = None
    """Where `mouseDown` was, and the fields that it left."""
    held: tuple[str, ...] = ()
    """Keys that are down."""
    used: bool = False
    """Did a key go through while others were held?"""

    def do(self, call: Call) -> None:
        """Read one call."""
        name = call.name
        if name in _KEYBOARD:
            _KEYBOARD[name](self, call)
            return
        if self.held:
            raise LabError(
                f"{call.source} happens while {self.held[-1]} is held; no action says so"
            )
        if self.pressed is not None and name not in ("moveTo", "move", "moveRel", "mouseUp"):
            raise LabError(f"{call.source} happens while a button is held; no action says so")
        if name in _POINTED:
            self._click(call)
        elif name in _MOUSE:
            _MOUSE[name](self, call)
        else:
            self.actions.append(_other(call))

    def finish(self) -> None:
        """Nothing may be left down."""
        if self.pressed is not None or self.held:
            what = "a mouse button" if self.pressed else self.held[-1]
            raise LabError(f"the code ends while {what} is held; the next step would go on with it")

    # ─── the pointer ──────────────────────────────────────────────────

    def _place(self, call: Call) -> Point:
        """Where a call acts; the pointer stays there."""
        point = point_of(call, self.at)
        if point is None:
            raise LabError("a pointer action has no x and y; the sample would not say where")
        self.at = point
        return point

    def _absorb_move(self, point: Point) -> None:
        """Drop a move that only led to the next action's point."""
        last = self.actions[-1] if self.actions else {}
        if last.get("action") == "move" and last["coordinates"] == point:
            self.actions.pop()

    def _click(self, call: Call) -> None:
        kind = _POINTED[call.name]
        if "clicks" in call.given:
            kind = _kind_of(call)
        button = {"rightClick": "right", "middleClick": "middle"}.get(call.name) or _button(call)
        point = self._place(call)
        self._absorb_move(point)
        side = {} if button is None else {"button": button}
        self.actions.append(
            {"action": kind, "coordinates": point} | side | call.rest("x", "y", "clicks", "button")
        )

    def _move(self, call: Call) -> None:
        point = self._place(call) if call.name == "moveTo" else self._offset(call)
        if self.pressed is None:
            action = {"action": "move", "coordinates": point}
            self.actions.append(action | call.rest("x", "y", "xOffset", "yOffset"))

    def _drag(self, call: Call) -> None:
        start = self.at
        end = self._place(call) if call.name == "dragTo" else self._offset(call)
        button = _button(call)
        begin: Action = {}
        if start is not None:
            self._absorb_move(start)
            begin = {"coordinates": start}
        side = {} if button is None else {"button": button}
        taken = ("x", "y", "xOffset", "yOffset", "button")
        self.actions.append(
            {"action": "drag"} | begin | {"end_coordinates": end} | side | call.rest(*taken)
        )

    def _offset(self, call: Call) -> Point:
        if self.at is None:
            raise LabError(
                f"{call.source} starts where nobody knows; the sample would not say where"
            )
        across, down = call.given.get("xOffset"), call.given.get("yOffset")
        if isinstance(across, (list, tuple)) and len(across) == 2 and down in (None, 0):
            across, down = across
        numbers = [0 if value is None else value for value in (across, down)]
        if not all(type(number) in (int, float) for number in numbers):
            raise LabError(f"{call.source} moves by {numbers}; expected two numbers")
        self.at = [here + by for here, by in zip(self.at, numbers, strict=True)]
        return self.at

    def _down(self, call: Call) -> None:
        button = _button(call)
        point = self._place(call)
        self._absorb_move(point)
        self.pressed = (point, {} if button is None else {"button": button})

    def _up(self, call: Call) -> None:
        if self.pressed is None:
            raise LabError(f"{call.source} lets a button go that no line has pressed")
        start, side = self.pressed
        end = self._place(call)
        self.pressed = None
        ends = {} if start == end else {"end_coordinates": end}
        self.actions.append(
            {"action": "drag" if ends else "click", "coordinates": start} | ends | side
        )

    def _scroll(self, call: Call) -> None:
        self.actions.append(self._scrolled(call))

    def _scrolled(self, call: Call) -> Action:
        amount = call.need("clicks")
        if (
            isinstance(amount, bool)
            or not isinstance(amount, (int, float))
            or not abs(amount) < 1e9
        ):
            raise LabError(f"{call.name} scrolls by {amount!r}; expected a number")
        if amount == 0:
            raise LabError(f"{call.source} scrolls by nothing; a sample shows an action")
        positive, negative = ("right", "left") if call.name == "hscroll" else ("up", "down")
        direction = positive if amount > 0 else negative
        action: Action = {"action": "scroll", "direction": direction, "amount": abs(amount)}
        if point_of(call, self.at) is not None:
            action["coordinates"] = self._place(call)
            self._absorb_move(action["coordinates"])
        return action | call.rest("clicks", "x", "y")

    # ─── the keyboard ─────────────────────────────────────────────────

    def _key_down(self, call: Call) -> None:
        self.held = (*self.held, *_names(call.need("key"), call.name))
        self.used = False

    def _key_up(self, call: Call) -> None:
        for key in _names(call.need("key"), call.name):
            if key not in self.held:
                raise LabError(f"{call.source} lets a key go that no line has pressed")
            if not self.used:
                self.actions.append({"action": "key", "keys": ["+".join(self.held)]})
                self.used = True
            self.held = tuple(other for other in self.held if other != key)

    def _press(self, call: Call) -> None:
        keys = _names(call.need("keys"), call.name)
        times = call.given.get("presses", 1)
        if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= 1000:
            raise LabError(f"press has presses={times!r}; expected a whole number from 1 up")
        chords = ["+".join((*self.held, key)) for key in keys] * times
        self._send(chords, call.rest("keys", "presses"))

    def _hotkey(self, call: Call) -> None:
        parts: Any = call.args or call.given.get("args") or call.given.get("keys") or []
        parts = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
        chord = "+".join((*self.held, *_names(parts, call.name)))
        self._send([chord], call.rest("args", "keys"))

    def _write(self, call: Call) -> None:
        text = call.need("message")
        rest = call.rest("message")
        if isinstance(text, (list, tuple)):
            self._send(["+".join((*self.held, key)) for key in _names(text, call.name)], rest)
            return
        if not isinstance(text, str):
            raise LabError(f"{call.name} types {text!r}; expected a string")
        if self.held:
            raise LabError(f"{call.source} types while {self.held[-1]} is held; no action says so")
        self.actions.append({"action": "type", "text": text} | rest)

    def _send(self, keys: list[str], rest: Action) -> None:
        self.used = True
        self.actions.append({"action": "key", "keys": keys} | rest)


_MOUSE = {
    "moveTo": _Hand._move,
    "move": _Hand._move,
    "moveRel": _Hand._move,
    "dragTo": _Hand._drag,
    "drag": _Hand._drag,
    "dragRel": _Hand._drag,
    "mouseDown": _Hand._down,
    "mouseUp": _Hand._up,
    "scroll": _Hand._scroll,
    "vscroll": _Hand._scroll,
    "hscroll": _Hand._scroll,
}
_KEYBOARD = {
    "keyDown": _Hand._key_down,
    "keyUp": _Hand._key_up,
    "press": _Hand._press,
    "hotkey": _Hand._hotkey,
    "shortcut": _Hand._hotkey,
    "write": _Hand._write,
    "typewrite": _Hand._write,
}


def _other(call: Call) -> Action:
    if call.name in ("wait", "sleep", "countdown"):
        seconds = call.given.get("seconds")
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float))
        ):
            raise LabError(f"{call.source} waits {seconds!r} seconds; expected a number")
        return {"action": "wait", **call.given}
    if call.name == "terminate":
        return {"action": "finish", **call.given}
    if call.name == "answer":
        return {"action": "finish", "answer": call.need("answer")}
    raise LabError(f"{call.name!r} is no action that samples know; see formats/pyautogui.py")


def _kind_of(call: Call) -> str:
    clicks = call.given["clicks"]
    if isinstance(clicks, bool) or clicks not in _CLICKS:
        raise LabError(f"{call.source} has clicks={clicks!r}; samples know 1, 2 and 3")
    return _CLICKS[clicks]


def _button(call: Call) -> str | None:
    """`None` is the left one."""
    said = call.given.get("button")
    said = _BUTTON_NUMBERS.get(said, said) if isinstance(said, int) else said
    if said is None:
        return None
    if not isinstance(said, str) or said.lower() not in _BUTTONS:
        raise LabError(f"{call.source} has button={said!r}; expected left, middle or right")
    return _BUTTONS[said.lower()]


def _names(keys: Any, name: str) -> list[str]:
    listed = [keys] if isinstance(keys, str) else keys
    if (
        not isinstance(listed, (list, tuple))
        or not listed
        or not all(isinstance(key, str) and key for key in listed)
    ):
        raise LabError(f"{name} has keys {keys!r}; expected names such as 'ctrl'")
    return list(listed)
