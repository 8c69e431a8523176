"""Fields of a request's JSON, read strictly: a value of another shape is a 400 that names it."""

from __future__ import annotations

import json
from typing import Any

from cua_lab.serving.wire import Body, WireError

MAX_ID = 2**31
"""Ids of every vocabulary are below; larger ones overflow the arrays that hold them."""
SEEDS = range(-(2**63), 2**64)


def parse_object(raw: bytes) -> Body:
    """The JSON object in `raw`."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:  # also numbers of more than 4300 digits
        raise WireError(f"the body is not JSON: {error}", "Bad Request") from error
    if not isinstance(body, dict):
        raise WireError("the body must be a JSON object", "Bad Request")
    return body


def number(body: Body, name: str, default: float) -> float:
    """A finite or infinite float; `default` for null or nothing."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"{name} must be a number, got {_short(value)}.", "Bad Request")
    try:
        return float(value)
    except OverflowError as error:
        raise WireError(f"{name} is too large for a number: {_short(value)}.") from error


def integer(body: Body, name: str, default: int | None) -> int | None:
    """A whole number; `default` for null or nothing."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"{name} must be an integer, got {_short(value)}.", "Bad Request")
    return value


def count(body: Body, name: str, default: int) -> int:
    """A whole number that is not negative."""
    value = integer(body, name, default)
    if value is None or value < 0:
        raise WireError(f"{name} must be at least 0, got {_short(value)}.")
    return value


def seed(body: Body) -> int | None:
    """`seed` or `sampling_seed`, within 64 bits."""
    name = "seed" if "seed" in body else "sampling_seed"
    value = integer(body, name, None)
    if value is not None and value not in SEEDS:
        raise WireError(f"{name} must fit into 64 bits, got {_short(value)}.")
    return value


def ids(value: Any, name: str) -> list[int]:
    """A list of token ids; whether the vocabulary has them is checked later."""
    if not isinstance(value, list | tuple) or not all(type(i) is int for i in value):
        raise WireError(f"{name} must be a list of integers", "Bad Request")
    for one in value:
        if not -MAX_ID <= one < MAX_ID:
            raise WireError(f"{name} holds {_short(one)}, which is no token id.")
    return list(value)


def stop_strings(value: Any) -> tuple[str, ...]:
    """`stop`: one string or a list of them, none empty (vllm#50200)."""
    listed = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise WireError(f"stop must be a string or a list of strings, got {_short(value)}.")
    if "" in listed:
        raise WireError("stop cannot contain an empty string: it would end every answer.")
    for one in listed:
        try:
            one.encode()
        except UnicodeEncodeError as error:
            raise WireError(f"stop holds half of a surrogate pair: {_short(one)}.") from error
    return tuple(listed)


def biases(value: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    """`{"id": bias}` as on the wire, within the limits that sglang and OpenAI set."""
    if not isinstance(value, dict):
        raise WireError('logit_bias must be an object {"id": bias}', "Bad Request")
    for key, bias in value.items():
        if not key.isdecimal() or len(key) > 10 or int(key) >= vocabulary:
            raise WireError(f"logit_bias names id {key!r:.40}; ids are 0 to {vocabulary - 1}.")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise WireError(f"logit_bias of id {key} must be from -100 to 100, got {_short(bias)}.")
    return tuple((int(key), float(bias)) for key, bias in value.items())


def field_object(body: Body, name: str) -> Body:
    """A field that is an object; empty for null or nothing."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{name} must be an object, got {_short(value)}.", "Bad Request")
    return value


def text_size(value: Any) -> int:
    """Characters of all text in a JSON value, names included and images left out."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(k) + text_size(v) for k, v in value.items() if k != "image_url")
    if isinstance(value, list):
        return sum(map(text_size, value))
    return 0


def _short(value: Any) -> str:
    """The value's `repr`, which for some numbers is longer than Python prints."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
