"""PyAutoGUI lines, as AgentNet and Aguvis write actions, as our action fields.

| code                                        | ours                                   |
|---------------------------------------------|----------------------------------------|
| `pyautogui.click(x=, y=)` (clicks=2 or 3)   | click (double_click, triple_click)     |
| `pyautogui.doubleClick`, `tripleClick`      | double_click, triple_click             |
| `computer.triple_click(x=, y=)`             | triple_click                           |
| `pyautogui.rightClick`, `button='right'`    | click with `button: right`             |
| `pyautogui.moveTo(x=, y=)`                  | move                                   |
| `moveTo(a)` then `dragTo(b)`                | drag from a to b                       |
| `pyautogui.write(message=)`, `typewrite`    | type                                   |
| `pyautogui.press(keys=)`                    | key, one entry a press                 |
| `pyautogui.hotkey(['ctrl', 'c'])`           | key, `["ctrl+c"]`                      |
| `pyautogui.scroll(n)`, `hscroll(n)`         | scroll up/down, left/right, amount abs |
| `computer.wait()`, `time.sleep(n)`          | wait                                   |
| `computer.terminate(status=)`, `answer(..)` | finish with `status` or `answer`       |

The code is parsed, never run. A line that is none of these is a `LabError` that shows it.

Invariant: a coordinate leaves as it was written; its space is the caller's to declare.
"""

import ast
from typing import Any

from cua_lab.errors import LabError

Call = tuple[str, list[Any], dict[str, Any]]
_POINTED = {
    "click": "click",
    "leftClick": "click",
    "rightClick": "click",
    "middleClick": "click",
    "doubleClick": "double_click",
    "tripleClick": "triple_click",
    "triple_click": "triple_click",
    "moveTo": "move",
}


def parse_actions(code: str) -> list[dict[str, Any]]:
    """Our action fields for each action of a piece of code, in order."""
    calls = [_call(line) for line in _statements(code)]
    actions: list[dict[str, Any]] = []
    for call in calls:
        action = _action(call)
        before = actions[-1] if actions else None
        if action["action"] == "drag" and before is not None and before["action"] == "move":
            actions.pop()
            action = {"action": "drag", "coordinates": before["coordinates"], **action}
        actions.append(action)
    return actions


def _statements(code: str) -> list[ast.expr]:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise LabError(f"cannot parse the action {code[:80]!r}: {error}") from error
    kept = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    if not all(isinstance(node, ast.Expr) for node in kept):
        raise LabError(f"the action {code[:80]!r} is more than calls; it cannot be converted")
    return [node.value for node in kept if isinstance(node, ast.Expr)]


def _call(node: ast.expr) -> Call:
    source = ast.unparse(node)
    if not isinstance(node, ast.Call):
        raise LabError(f"{source[:80]!r} is not a call")
    name = ast.unparse(node.func).rsplit(".", 1)[-1]
    try:
        args = [ast.literal_eval(arg) for arg in node.args]
        named = {word.arg or "": ast.literal_eval(word.value) for word in node.keywords}
    except ValueError as error:
        raise LabError(f"{source[:80]!r} has arguments that are not plain values") from error
    return name, args, named


def _action(call: Call) -> dict[str, Any]:
    name, args, named = call
    if name in _POINTED:
        return _pointed(name, args, named)
    if name == "dragTo":
        point = _point(args, named)
        return {"action": "drag", "end_coordinates": point} | _others(named, "x", "y")
    if name in ("write", "typewrite"):
        text = _first(call, "message", "text")
        if not isinstance(text, str):
            raise LabError(f"{name} types {text!r}; expected a string")
        return {"action": "type", "text": text} | _others(named, "message", "text")
    if name == "press":
        keys = _names(_first(call, "keys", "key"), name)
        times = named.get("presses", args[1] if len(args) > 1 else 1)
        if not isinstance(times, int) or times < 1:
            raise LabError(f"press has presses={times!r}; expected a whole number from 1 up")
        return {"action": "key", "keys": keys * times}
    if name == "hotkey":
        parts = args or named.get("args") or named.get("keys") or []
        parts = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
        return {"action": "key", "keys": ["+".join(_names(parts, name))]}
    if name in ("scroll", "vscroll", "hscroll"):
        return _scroll(name, call)
    if name in ("wait", "sleep"):
        return {"action": "wait"} | ({"seconds": args[0]} if args else named)
    if name == "terminate":
        return {"action": "finish", **named} | ({"status": args[0]} if args else {})
    if name == "answer":
        return {"action": "finish", "answer": _first(call, "answer", "text")}
    raise LabError(f"{name!r} is no action that samples know; see formats/pyautogui.py")


def _names(keys: Any, name: str) -> list[str]:
    listed = [keys] if isinstance(keys, str) else keys
    if (
        not isinstance(listed, (list, tuple))
        or not listed
        or not all(isinstance(key, str) and key for key in listed)
    ):
        raise LabError(f"{name} has keys {keys!r}; expected names such as 'ctrl'")
    return list(listed)


def _pointed(name: str, args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    kind = _POINTED[name]
    clicks = named.get("clicks", 1)
    if kind == "click" and clicks in (2, 3):
        kind = {2: "double_click", 3: "triple_click"}[clicks]
    button = {"rightClick": "right", "middleClick": "middle"}.get(name, named.get("button"))
    side = {} if button in (None, "left", "primary") else {"button": button}
    rest = _others(named, "x", "y", "clicks", "button")
    return {"action": kind, "coordinates": _point(args, named)} | side | rest


def _scroll(name: str, call: Call) -> dict[str, Any]:
    _, args, named = call
    amount = _first(call, "clicks", "amount")
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise LabError(f"{name} scrolls by {amount!r}; expected a number")
    positive, negative = ("right", "left") if name == "hscroll" else ("up", "down")
    action = {
        "action": "scroll",
        "direction": positive if amount > 0 else negative,
        "amount": abs(amount),
    }
    if "x" in named and "y" in named:
        action["coordinates"] = [named["x"], named["y"]]
    elif len(args) >= 3:
        action["coordinates"] = [args[1], args[2]]
    return action


def _first(call: Call, *names: str) -> Any:
    name, args, named = call
    for key in names:
        if key in named:
            return named[key]
    if not args:
        raise LabError(f"{name} lacks its {names[0]}")
    return args[0]


def _point(args: list[Any], named: dict[str, Any]) -> list[Any]:
    if args and isinstance(args[0], (list, tuple)):
        args = [*args[0], *args[1:]]
    x = named.get("x", args[0] if args else None)
    y = named.get("y", args[1] if len(args) > 1 else None)
    if x is None or y is None:
        raise LabError("a pointer action has no x and y; the sample would not say where")
    return [x, y]


def _others(named: dict[str, Any], *taken: str) -> dict[str, Any]:
    return {key: value for key, value in named.items() if key not in taken}
