"""One sample: a screenshot, an instruction, and the action that answers it.

The row (one JSON object a line):

    {"screenshot": "shots/17.png",            path, relative to the file's folder
     "instruction": "Open the settings",
     "action": "click",                       see `actions.py`; or an object {"type": "click", ...}
     "coordinates": [412, 87],                where the action has a point
     "end_coordinates": [600, 87],            drag only
     "text": "...", "keys": ["ctrl+s"], "direction": "down", "amount": 3,   by action
     "button": "right", "seconds": 2,         click and drag; wait
     "coordinate_space": "pixels",            0-1 | 0-1000 | pixels; or declared for the whole file
     "bbox": [400, 80, 430, 95],              the target's corners, same space
     "elements": [...],                       as OmniParser writes them, see `omniparser.py`
     "image_size": [1280, 800], "target_type": "icon", "steps": 1, "id": "..."}

Invariant: reading a row and writing it again loses nothing; what is not listed here survives in
`extra` and returns to the top level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cua_lab.dataset import spaces
from cua_lab.dataset.actions import ACTIONS, SAME
from cua_lab.dataset.jsonl import dumps
from cua_lab.dataset.omniparser import Element, read_elements
from cua_lab.dataset.spaces import Box, Point, Size, Space
from cua_lab.errors import LabError
from cua_lab.files import writing

_TARGET = {"coordinates", "end_coordinates", "coordinate_space", "bbox", "target_type"}
_ACTION = {"action", "text", "keys", "direction", "amount", "button", "seconds"}
_SCREEN = {"screenshot", "image_size", "elements"}
KNOWN = frozenset(_TARGET | _ACTION | _SCREEN | {"instruction", "steps", "id"})


@dataclass(frozen=True, slots=True)
class GroundingSample:
    """A checked sample; every coordinate is in `space`."""

    screenshot: str
    instruction: str
    action: str
    space: Space | None = None
    """`None` only where there is no coordinate to read."""
    coordinates: Point | None = None
    end_coordinates: Point | None = None
    text: str | None = None
    keys: tuple[str, ...] = ()
    direction: str | None = None
    amount: float | None = None
    """Wheel clicks; `None` where the sample only says which way."""
    button: str | None = None
    """`None` is the left one."""
    seconds: float | None = None
    bbox: Box | None = None
    elements: tuple[Element, ...] = ()
    image_size: Size | None = None
    target_type: str | None = None
    steps: int | None = None
    """Actions the whole task takes; `None` where nobody counted."""
    id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields this package does not know, kept as they came."""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise LabError(
                f"action is {self.action!r}; expected one of {', '.join(ACTIONS)} (or press)"
            )
        if self.space is None and (self.coordinates is not None or self.bbox is not None):
            raise LabError(
                "the sample has coordinates but no coordinate_space;"
                f" declare one of {', '.join(spaces.SPACES)}"
            )

    @property
    def point_unit(self) -> Point | None:
        """The point as fractions of width and height."""
        if self.coordinates is None or self.space is None:
            return None
        return spaces.point_to_unit(self.coordinates, self.space, self.image_size)

    @property
    def box_unit(self) -> Box | None:
        """The target box as fractions of width and height."""
        if self.bbox is None or self.space is None:
            return None
        return spaces.box_to_unit(self.bbox, self.space, self.image_size)

    def to_row(self) -> dict[str, Any]:
        """The JSON row; absent fields are left out."""
        row: dict[str, Any] = {
            "screenshot": self.screenshot,
            "instruction": self.instruction,
            "action": self.action,
        }
        optional: dict[str, Any] = {
            "coordinate_space": self.space,
            "coordinates": _listed(self.coordinates),
            "end_coordinates": _listed(self.end_coordinates),
            "text": self.text,
            "keys": list(self.keys) or None,
            "direction": self.direction,
            "amount": self.amount,
            "button": self.button,
            "seconds": self.seconds,
            "bbox": _listed(self.bbox),
            "elements": [element.to_row() for element in self.elements] or None,
            "image_size": _listed(self.image_size),
            "target_type": self.target_type,
            "steps": self.steps,
            "id": self.id,
        }
        row.update((key, value) for key, value in optional.items() if value is not None)
        return row | dict(self.extra)


def _listed(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


def flatten_action(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with an action object spread over it: `{"action": {"type": "click", ...}}`.

    The object's own fields win, since they are the nearer ones. An empty list of coordinates says
    that there are none.
    """
    action = row.get("action")
    flat = dict(row)
    if isinstance(action, Mapping):
        inner = dict(action)
        name = inner.pop("type", None) or inner.pop("action", None)
        flat = {**row, **inner, "action": name}
    if flat.get("coordinates") == []:
        del flat["coordinates"]
    return flat


def point_of(value: object) -> Point | None:
    """Two finite numbers as a point, from a list or {"x": .., "y": ..}; `None` where it is not."""
    if isinstance(value, Mapping):
        value = [value.get("x"), value.get("y")]
    numbers = numbers_of(value, 2)
    return None if numbers is None else (numbers[0], numbers[1])


def box_of(value: object) -> Box | None:
    """Four finite numbers as corners; `None` where it is not. Order is not checked here."""
    numbers = numbers_of(value, 4)
    return None if numbers is None else (numbers[0], numbers[1], numbers[2], numbers[3])


def numbers_of(value: object, count: int) -> list[float] | None:
    """`count` finite numbers; booleans and numerals in strings are not numbers."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        return None
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float)):
            return None
        if not abs(item) < 1e12:  # NaN, infinities and nonsense alike
            return None
    return [float(item) for item in value]


def from_row(row: Mapping[str, Any], *, space: Space | None = None) -> GroundingSample:
    """A row as a sample; `space` is the file's, the row's own `coordinate_space` wins.

    Raises `LabError` naming the field. To learn everything that is wrong with a row, and with its
    image, use `checks.check_row`.
    """
    flat = flatten_action(row)
    own = flat.get("coordinate_space", space)
    size = numbers_of(flat.get("image_size"), 2)
    keys = flat.get("keys")
    return GroundingSample(
        screenshot=_text(flat, "screenshot"),
        instruction=_text(flat, "instruction"),
        action=SAME.get(_text(flat, "action"), _text(flat, "action")),
        space=None if own is None else spaces.as_space(own),
        coordinates=_read(flat, "coordinates", point_of),
        end_coordinates=_read(flat, "end_coordinates", point_of),
        text=flat.get("text"),
        keys=(keys,) if isinstance(keys, str) else tuple(keys or ()),
        direction=flat.get("direction"),
        amount=flat.get("amount"),
        button=flat.get("button"),
        seconds=flat.get("seconds"),
        bbox=_read(flat, "bbox", box_of),
        elements=read_elements(flat.get("elements") or ()),
        image_size=None if size is None else (int(size[0]), int(size[1])),
        target_type=flat.get("target_type"),
        steps=flat.get("steps"),
        id=flat.get("id"),
        extra={key: value for key, value in flat.items() if key not in KNOWN},
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise LabError(f"{key} is {value!r}; expected a non-empty string")
    return value


def _read(row: Mapping[str, Any], key: str, reader: Any) -> Any:
    value = row.get(key)
    if value is None:
        return None
    read = reader(value)
    if read is None:
        raise LabError(f"{key} is {value!r}; expected finite numbers, as in the row's description")
    return read


def read_samples(path: str | Path, *, space: Space | None = None) -> Iterator[GroundingSample]:
    """The samples of a JSONL file that has passed the check, one at a time."""
    import json

    with open(path, encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield from_row(json.loads(line), space=space)
            except (LabError, ValueError) as error:
                raise LabError(
                    f"{path} line {number}: {error}; `cua-lab data check` sorts such rows out"
                ) from error


def write_samples(path: str | Path, samples: Iterable[GroundingSample]) -> int:
    """Write rows to a neighbour file, then rename: no half-written file is ever seen."""
    count = 0
    with writing(path) as out:
        for sample in samples:
            out.write(dumps(sample.to_row()).encode() + b"\n")
            count += 1
    return count
