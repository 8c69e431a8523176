"""What every reader of a public row needs: a field of the promised type, or a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cua_lab.dataset.jsonl import show
from cua_lab.errors import LabError

Row = dict[str, Any]


def need(row: Any, key: str, kind: type) -> Any:
    """A field that the format promises, of the type it promises."""
    if not isinstance(row, Mapping):
        raise LabError(f"a {type(row).__name__} stands where an object with {key!r} was expected")
    value = row.get(key)
    if not isinstance(value, kind):
        raise LabError(f"{key!r} is a {type(value).__name__}; expected {kind.__name__}")
    return value


def strings(value: Any, what: str) -> list[str]:
    """A list of strings, or none where the field is absent."""
    listed = [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise LabError(f"{what} is {show(value)}; expected a list of strings")
    return listed


def rest(row: Mapping[str, Any], *taken: str) -> Row:
    """The fields of a public row that have no place in ours."""
    return {key: value for key, value in row.items() if key not in taken}
