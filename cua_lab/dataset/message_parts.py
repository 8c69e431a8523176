"""A conversation's messages as parts in order: whatever way its file has of writing images.

    content as a list     [{"type": "image", "image": "a.png"}, {"type": "text", "text": "Click."}]
    content as a string   "<image>Click." beside "images": ["a.png"]      (LLaMA-Factory, ms-swift)

Invariant: no part is dropped and none changes its place; images that cannot be matched to their
places are an error that gives both counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cua_lab.errors import LabError

Message = dict[str, Any]
PLACE = "<image>"
"""Where an image of `images` belongs."""


def messages_of(conversation: Mapping[str, Any]) -> list[Message]:
    """The messages; where `images` stands beside them, string content becomes parts."""
    given = conversation.get("messages")
    if not isinstance(given, list) or not all(isinstance(m, Mapping) for m in given):
        raise LabError(f"messages is {type(given).__name__}; expected a list of messages")
    messages = [dict(message) for message in given]
    images = conversation.get("images")
    if images is not None:
        messages = _placed(messages, images)
    for message in messages:
        _check_parts(message)
    return messages


def parts_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message's content as parts; a string is one text."""
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def images_of(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The screenshots of all messages, in order."""
    parts = (part for message in messages for part in parts_of(message))
    return tuple(part["image"] for part in parts if part["type"] == "image")


def is_sample(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a sample can hold it: one image, one text and one action, with any system message."""
    said = [message for message in messages if message.get("role") != "system"]
    if [message.get("role") for message in said] != ["user", "assistant"]:
        return False
    kinds = sorted(part["type"] for part in parts_of(said[0]))
    return kinds == ["image", "text"] and len(said[1].get("tool_calls") or [None]) == 1


def _placed(messages: list[Message], images: Any) -> list[Message]:
    if not isinstance(images, list) or not all(isinstance(name, str) for name in images):
        raise LabError(f"images is {images!r}; expected a list of file names")
    said = [m for m in messages if m.get("role") != "assistant"]
    places = sum(m["content"].count(PLACE) for m in said if isinstance(m.get("content"), str))
    if places != len(images):
        raise LabError(
            f"there are {len(images)} images but {places} places for them; each image needs one"
            f" {PLACE} in the text"
        )
    left = iter(images)
    return [
        message | {"content": list(_split(message["content"], left))}
        if message.get("role") != "assistant" and PLACE in str(message.get("content"))
        else message
        for message in messages
    ]


def _split(text: str, images: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Texts and images in order; a line break that only parts the two goes."""
    for piece in re.split(f"(\n?{re.escape(PLACE)}\n?)", text):
        if PLACE in piece:
            yield {"type": "image", "image": next(images)}
        elif piece:
            yield {"type": "text", "text": piece}


def _check_parts(message: Message) -> None:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise LabError(f"a message's content is {type(content).__name__}; expected text or parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "image") or not isinstance(part.get(kind), str):
            raise LabError(
                f"a message has the part {part!r}; expected"
                ' {"type": "text", "text": ...} or {"type": "image", "image": file}'
            )
