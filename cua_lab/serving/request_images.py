"""Which images a chat request shows, by name.

Invariant: all of them in the order of the prompt, or `None` where one cannot be named (an address
that only the server reads); a guess would put another screenshot's pixels into training.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

from cua_lab.stitching.turn import image_key


def request_images(messages: Sequence[Any]) -> tuple[str, ...] | None:
    """The `image_key` of each image in the messages."""
    keys = [_key(url) for url in _urls(messages)]
    named = tuple(key for key in keys if key is not None)
    return named if len(named) == len(keys) else None


def _urls(messages: Sequence[Any]) -> Iterator[Any]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("image_url", "image"):
                named = part.get("image_url", part.get("image"))
                yield named.get("url") if isinstance(named, dict) else named


def _key(url: Any) -> str | None:
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    header, comma, data = url.partition(",")
    if not comma or not header.endswith(";base64"):
        return None
    try:
        return image_key(base64.b64decode(data))
    except (binascii.Error, ValueError):
        return None
