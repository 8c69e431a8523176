"""Conversations to train on: the article's shape and ours, either way without loss.

    article   user [image, text] -> "```json\\n{"action": "click", "coordinates": [x, y]}\\n```"
    ours      user [text, image] -> tool_calls [computer {"action": "click", "x": x, "y": y}]

A conversation is `{"messages": [...], "sample": {...}}`: `sample` holds the row's fields that no
message says (box, elements, extra, ...). Coordinates keep the sample's space in both shapes;
`in_space` changes it, in the open, since 0-1000 rounds.

Invariant: to one shape and back gives the same messages, byte for byte. Where the other shape
cannot say everything (odd formatting, a scroll without a point), the message keeps its original in
`source`, which chat templates ignore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cua_lab.dataset import spaces
from cua_lab.dataset.actions import ACTIONS, FROM_TOOL, SAME
from cua_lab.dataset.grounding import GroundingSample, from_row, point_of
from cua_lab.dataset.jsonl import show
from cua_lab.dataset.message_parts import messages_of, parts_of
from cua_lab.dataset.spaces import Point, Space
from cua_lab.errors import LabError

Message = dict[str, Any]
TOOL = "computer"
DONE = "Tool executed successfully"
"""HUD's tool message for a result that is an image; the article has none between two turns."""
SCROLL_CLICKS, MOST_CLICKS = 3, 30
"""Wheel clicks where a sample does not say how many, and the most that the tool takes."""
_FENCE = re.compile(r"```json\s*\n(.*?)\n\s*```", re.DOTALL)
_SAID = (
    "coordinates",
    "end_coordinates",
    "text",
    "keys",
    "direction",
    "amount",
    "button",
    "seconds",
)


def in_space(sample: GroundingSample, space: Space) -> GroundingSample:
    """The sample in another space. `0-1000` rounds to whole numbers, points and boxes alike."""
    if sample.space is None or sample.space == space:
        return sample

    def moved(point: Point) -> Point:
        unit = spaces.point_to_unit(point, sample.space or space, sample.image_size)
        return spaces.point_from_unit(unit, space, sample.image_size)

    box, point, end = sample.bbox, sample.coordinates, sample.end_coordinates
    return replace(
        sample,
        space=space,
        coordinates=None if point is None else moved(point),
        end_coordinates=None if end is None else moved(end),
        bbox=None if box is None else (*moved(box[:2]), *moved(box[2:])),
    )


def to_article(sample: GroundingSample) -> dict[str, Any]:
    """A sample as the article trains on it."""
    said, others = _split(sample)
    user = {
        "role": "user",
        "content": [
            {"type": "image", "image": sample.screenshot},
            {"type": "text", "text": sample.instruction},
        ],
    }
    return {"messages": [user, said], "sample": others}


def to_tool_calls(sample: GroundingSample, space: Space | None = None) -> dict[str, Any]:
    """A sample as our agent's conversation: text, then image, then one call.

    `space` is the one the policy speaks; by default the sample's own.
    """
    sample = sample if space is None else in_space(sample, space)
    said, others = _split(sample)
    user = {
        "role": "user",
        "content": [
            {"type": "text", "text": sample.instruction},
            {"type": "image", "image": sample.screenshot},
        ],
    }
    answer = _tool_message(said, 0, _middle(sample, space or sample.space))
    return {"messages": [user, answer], "sample": others}


def from_conversation(conversation: Mapping[str, Any]) -> GroundingSample:
    """The sample of a one-step conversation in either shape: one image, one text, one action.

    A system message is no part of a sample: a reader that trains on the row keeps it beside.
    """
    messages = [m for m in messages_of(conversation) if m.get("role") != "system"]
    if [m.get("role") for m in messages] != ["user", "assistant"]:
        roles = ", ".join(str(m.get("role")) for m in messages)
        raise LabError(f"a sample is one user and one assistant message; got {roles}")
    user, answer = messages
    parts: dict[str, list[str]] = {"image": [], "text": []}
    for part in parts_of(user):
        parts[part["type"]].append(part[part["type"]])
    if [len(found) for found in parts.values()] != [1, 1]:
        raise LabError(
            f"a sample is one image and one text; got {len(parts['image'])} images and"
            f" {len(parts['text'])} texts"
        )
    if "tool_calls" in answer:
        answer = _article_message(answer)
    thought, fields = _unfenced(answer["content"])
    row = {
        "screenshot": parts["image"][0],
        "instruction": parts["text"][0],
        **fields,
        **conversation.get("sample", {}),
    }
    return from_row(row | ({"thought": thought} if thought else {}))


def _middle(sample: GroundingSample, space: Space | None) -> Point | None:
    """The middle of the screen, for a scroll that says no point; `None` where it cannot be told."""
    if space is None or (space == "pixels" and sample.image_size is None):
        return None
    return spaces.point_from_unit((0.5, 0.5), space, sample.image_size)


def article_to_tool_calls(
    messages: Sequence[Message], *, middle: Point | None = None
) -> list[Message]:
    """The article's messages in our shape; user messages stay as they are.

    `middle` is the middle of the screen, needed only for a scroll without a point.
    """
    out: list[Message] = []
    for index, message in enumerate(messages):
        if message.get("role") != "assistant":
            if out and message.get("role") == "tool" and message == out[-1]:
                raise LabError(f"message {index} is HUD's; the article has no tool messages")
            out.append(dict(message))
            continue
        number = sum(m.get("role") == "assistant" for m in out)
        out.append(_tool_message(message, number, middle))
        if "source" not in message and index + 1 < len(messages):
            out.append(_done(out[-1]))
    return out


def tool_calls_to_article(messages: Sequence[Message]) -> list[Message]:
    """Our messages in the article's shape; HUD's tool messages, which say nothing, go."""
    out: list[Message] = []
    dropped = False
    for index, message in enumerate(messages):
        if message.get("role") == "assistant":
            # HUD's way: after a call comes its tool message, then the next screenshot. The tool
            # message says nothing and is left out; `article_to_tool_calls` writes it again.
            following = messages[index + 1 : index + 3]
            answer = _article_message(message)
            usual = not following or (len(following) == 2 and following[0] == _done(message))
            # Anything else could not be written again, so the message keeps its original, which
            # says on the way back that no tool message was left out here.
            if not usual and "source" not in answer and "source" not in message:
                answer = answer | {"source": message}
            out.append(answer)
            dropped = bool(following) and usual and "source" not in answer
        elif dropped:
            dropped = False
        else:
            out.append(dict(message))
    return out


def _done(answer: Message) -> Message:
    calls = answer.get("tool_calls") or [{}]
    return {"role": "tool", "tool_call_id": calls[0].get("id"), "content": DONE}


def _split(sample: GroundingSample) -> tuple[Message, dict[str, Any]]:
    """The answer in the article's shape, and what only the row says."""
    row = sample.to_row()
    thought = row.pop("thought") if isinstance(row.get("thought"), str) else ""
    fields = {"action": row.pop("action")} | {k: row.pop(k) for k in _SAID if k in row}
    for key in ("screenshot", "instruction"):
        del row[key]
    body = _fenced({key: _plain(value) for key, value in fields.items()}, thought)
    return {"role": "assistant", "content": body}, row


def _plain(value: Any) -> Any:
    """Whole floats as integers, as people and models write them."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fenced(fields: Mapping[str, Any], thought: str) -> str:
    body = json.dumps(fields, ensure_ascii=False)
    return f"{thought}```json\n{body}\n```"


def _unfenced(text: Any) -> tuple[str, dict[str, Any]]:
    """(what comes before the fence, the action's fields)."""
    fences = list(_FENCE.finditer(text)) if isinstance(text, str) else []
    if not fences:
        raise LabError(f"the assistant says {show(text)}; expected an action as ```json ... ```")
    last = fences[-1]  # a thought before it may hold examples
    return text[: last.start()], _object(last.group(1), "the fenced action")


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LabError(f"{what} is {show(value)}; expected an object")
    return value


def _tool_message(message: Message, number: int, middle: Point | None) -> Message:
    if "source" in message:
        source: Message = message["source"]
        return source
    thought, fields = _unfenced(message.get("content"))
    arguments = json.dumps(_arguments(fields, middle), ensure_ascii=False)
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": TOOL, "arguments": arguments},
    }
    derived: Message = {"role": "assistant", "content": thought, "tool_calls": [call]}
    same = _derived_article(derived) == message
    return derived if same else derived | {"source": message}


def _article_message(message: Message) -> Message:
    if "source" in message:
        source: Message = message["source"]
        return source
    derived = _derived_article(message)
    number = _number_of(message)
    same = number is not None and _tool_message(derived, number, None) == message
    return derived if same else derived | {"source": message}


def _derived_article(message: Message) -> Message:
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        raise LabError(
            f"an assistant message has {len(calls)} calls; the article's shape holds one"
        )
    arguments = calls[0]["function"]["arguments"]
    if isinstance(arguments, str):
        arguments = _object(arguments, "the call's arguments")
    thought = message.get("content") or ""
    if not isinstance(thought, str):
        raise LabError(f"an assistant message has content {show(thought)}; expected a string")
    return {"role": "assistant", "content": _fenced(_fields(arguments), thought)}


def _number_of(message: Message) -> int | None:
    found = re.fullmatch(r"call_(\d+)", str(message["tool_calls"][0].get("id")))
    return None if found is None else int(found.group(1))


def _arguments(fields: Mapping[str, Any], middle: Point | None) -> dict[str, Any]:
    """The tool's arguments for an action's fields, in the tool's order."""
    name = SAME.get(fields.get("action", ""), fields.get("action", ""))
    if name not in ACTIONS:
        raise LabError(f"action is {show(name)}; expected one of {', '.join(ACTIONS)}")
    out: dict[str, Any] = {"action": ACTIONS[name].tool}
    if name in ("click", "double_click", "triple_click", "move", "drag"):
        out |= _xy(fields, "coordinates", "x", "y")
    if name == "drag":
        out |= _xy(fields, "end_coordinates", "to_x", "to_y")
    if name == "scroll":
        out |= _scroll(fields, middle)
    kept = {"button", "text", "seconds"} if name != "scroll" else set()
    out |= {key: value for key, value in fields.items() if key in kept}
    if name == "key":
        keys = fields.get("keys")
        out["keys"] = [keys] if isinstance(keys, str) else keys
    return out


def _xy(fields: Mapping[str, Any], key: str, x: str, y: str) -> dict[str, Any]:
    point = point_of(fields.get(key))
    if point is None:
        raise LabError(f"{fields.get('action')} has {key} {show(fields.get(key))}; expected [x, y]")
    return {x: _plain(point[0]), y: _plain(point[1])}


def _scroll(fields: Mapping[str, Any], middle: Point | None) -> dict[str, Any]:
    direction = fields.get("direction")
    if direction not in ("up", "down", "left", "right"):
        raise LabError(f"scroll has direction {show(direction)}; expected up, down, left or right")
    if fields.get("coordinates") is None:
        if middle is None:
            raise LabError(
                "a scroll without a point needs the middle of the screen: give the sample an"
                " image_size, or say which space the policy speaks"
            )
        at = {"x": _plain(middle[0]), "y": _plain(middle[1])}
    else:
        at = _xy(fields, "coordinates", "x", "y")
    amount = fields.get("amount") or SCROLL_CLICKS
    if not isinstance(amount, (int, float)) or not abs(amount) < 1e9:
        raise LabError(f"scroll has amount {show(amount)}; expected a number of wheel clicks")
    clicks = min(MOST_CLICKS, max(1, round(amount)))
    axis = "scroll_y" if direction in ("up", "down") else "scroll_x"
    return {**at, axis: clicks if direction in ("down", "right") else -clicks}


def _fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The action's fields for the tool's arguments."""
    action = FROM_TOOL.get(str(arguments.get("action")))
    if action is None:
        raise LabError(f"the call's action is {show(arguments.get('action'))}; no sample has it")
    out: dict[str, Any] = {"action": action}
    if "x" in arguments:
        out["coordinates"] = [arguments["x"], arguments["y"]]
    if "to_x" in arguments:
        out["end_coordinates"] = [arguments["to_x"], arguments["to_y"]]
    out |= {key: arguments[key] for key in ("text", "keys") if key in arguments}
    if action == "scroll":
        across, down = arguments.get("scroll_x", 0), arguments.get("scroll_y", 0)
        clicks, names = (down, ("up", "down")) if down else (across, ("left", "right"))
        out |= {"direction": names[clicks > 0], "amount": abs(clicks)}
    return out | {key: arguments[key] for key in ("button", "seconds") if key in arguments}
