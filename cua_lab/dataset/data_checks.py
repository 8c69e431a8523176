"""The checks of one row: every reason it should not be trained on, not only the first.

Pure functions over the parsed row and the image's facts; duplicates, which need memory, are in
`quality.py`.

Invariant: any JSON value may come in; what comes out is a list of `Reason`, empty for a good row.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cua_lab.dataset import spaces
from cua_lab.dataset.actions import ACTIONS, DIRECTIONS, SAME, ActionSpec
from cua_lab.dataset.grounding import box_of, flatten_action, point_of
from cua_lab.dataset.image_facts import ImageFacts
from cua_lab.dataset.instructions import check_languages, language_problem, leak
from cua_lab.dataset.jsonl import show
from cua_lab.dataset.omniparser import element_boxes
from cua_lab.dataset.spaces import Box, Point, Size, Space
from cua_lab.errors import LabError

Found = Callable[[str, str], None]
Flat = dict[str, Any]

REASONS: dict[str, str] = {
    "not_json": "the line is not a JSON object in UTF-8",
    "row_too_long": "the line is longer than 16 MiB",
    "screenshot_missing": "no screenshot is named, or the file is not there",
    "screenshot_broken": "the file is not a whole image",
    "screenshot_small": "the screenshot is smaller than the smallest size asked for",
    "screenshot_blank": "the screenshot is one flat colour",
    "image_size_wrong": "image_size does not tell the screenshot's real size",
    "instruction_missing": "there is no instruction",
    "instruction_short": "the instruction is too short to say anything",
    "instruction_long": "the instruction is longer than asked for",
    "instruction_language": "the instruction is in another script than the languages asked for",
    "instruction_leak": "the instruction gives the answer away",
    "action_missing": "there is no action",
    "action_unknown": "the action is not one of those a sample may have",
    "argument_missing": "the action lacks what it cannot do without (text, keys, direction, end)",
    "coordinates_missing": "the action needs a point and has none",
    "coordinates_invalid": "the coordinates are not two finite numbers",
    "coordinates_range": "the point lies outside the declared space",
    "space_undeclared": "neither the row nor the command says which space the coordinates are in",
    "space_unknown": "the row names a space that does not exist",
    "box_invalid": "the target box is not four numbers x0 < x1, y0 < y1",
    "box_range": "the target box lies outside the declared space",
    "point_outside_box": "the point is not inside the target box",
    "elements_invalid": "the element list is not in OmniParser's form",
    "elements_many": "there are more elements than asked for",
    "point_outside_elements": "no element lies under the point",
    "duplicate": "an earlier row has the same image and instruction",
    "near_duplicate": "an earlier row has nearly this image, the same instruction and target",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a row was rejected: a name from `REASONS` and what was found in this row."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What a row must fulfil; every number may be set from the command line."""

    space: Space | None = None
    """The file's coordinate space; a row's own `coordinate_space` wins. `None`: rows must say."""
    min_size: Size = (1024, 768)
    max_elements: int = 200
    instruction_chars: tuple[int, int] = (3, 500)
    languages: tuple[str, ...] = ("en",)
    """Accepted languages, told apart by script; empty: any."""
    point_in_elements: bool = True
    """Where a row has elements but no box, one of them must lie under the point."""

    def __post_init__(self) -> None:
        check_languages(self.languages)
        if self.space is not None:
            spaces.as_space(self.space)
        low, high = self.instruction_chars
        if min(*self.min_size, self.max_elements) < 0 or not 0 <= low <= high:
            raise LabError(f"rules have a negative or swapped limit: {self}")


@dataclass(frozen=True, slots=True)
class Checked:
    """A row's reasons and what was read on the way, for the checks that need other rows."""

    reasons: tuple[Reason, ...]
    instruction: str | None = None
    point: Point | None = None
    space: Space | None = None
    size: Size | None = None

    @property
    def point_unit(self) -> Point | None:
        """The point in the unit square; `None` where it cannot be told."""
        if self.point is None or self.space is None:
            return None
        if self.space == "pixels" and self.size is None:
            return None
        return spaces.point_to_unit(self.point, self.space, self.size)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the target is, as far as the row says."""

    space: Space | None
    size: Size | None
    point: Point | None
    box: Box | None


def check_row(row: object, facts: ImageFacts | None, rules: Rules) -> Checked:
    """All reasons against a row. `facts` is `None` where the row names no screenshot."""
    if not isinstance(row, Mapping):
        return Checked((Reason("not_json", f"a {type(row).__name__}, not an object"),))
    flat = flatten_action(row)
    reasons: list[Reason] = []

    def found(reason: str, detail: str) -> None:
        reasons.append(Reason(reason, detail))

    size = _check_image(flat, facts, rules, found)
    spec = _check_action(flat, found)
    space = _check_space(flat, spec, rules, found)
    point = _check_points(flat, spec, space, size, found)
    box = _check_box(flat, space, size, point, found)
    place = _Place(space, size, point, box)
    _check_elements(flat, place, rules, found)
    text = _check_instruction(flat, place, rules, found)
    return Checked(tuple(reasons), text, point, space, size)


def screenshot_of(row: object) -> str | None:
    """The screenshot's path as the row gives it."""
    path = row.get("screenshot") if isinstance(row, Mapping) else None
    return path if isinstance(path, str) and path.strip() else None


def _check_image(flat: Flat, facts: ImageFacts | None, rules: Rules, found: Found) -> Size | None:
    if facts is None:
        found("screenshot_missing", f"screenshot is {show(flat.get('screenshot'))}")
        return None
    if facts.problem is not None:
        found("screenshot_missing" if facts.missing else "screenshot_broken", facts.problem)
    size = facts.size
    if size is None:
        return None
    if size[0] < rules.min_size[0] or size[1] < rules.min_size[1]:
        found("screenshot_small", f"{_by(size)}, at least {_by(rules.min_size)} asked for")
    if facts.blank:
        found("screenshot_blank", "one grey level covers at least 99.95% of it")
    said = flat.get("image_size")
    if said is not None and (not isinstance(said, (list, tuple)) or list(said) != list(size)):
        found("image_size_wrong", f"image_size is {show(said)}, the file is {_by(size)}")
    return size


def _check_action(flat: Flat, found: Found) -> ActionSpec | None:
    name = flat.get("action")
    if name is None or name == "":
        found("action_missing", "no action")
        return None
    if not isinstance(name, str):
        found("action_unknown", f"action is {show(name)}")
        return None
    name = SAME.get(name, name)
    if name not in ACTIONS:
        near = difflib.get_close_matches(name[:40].lower(), ACTIONS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        found("action_unknown", f"{show(name)} is none of {', '.join(ACTIONS)}{hint}")
        return None
    _check_argument(name, flat, found)
    return ACTIONS[name]


def _check_argument(name: str, flat: Flat, found: Found) -> None:
    argument = ACTIONS[name].argument
    if argument is None or argument == "end_coordinates":
        return
    value = flat.get(argument)
    if argument == "text":
        good = isinstance(value, str) and value != ""
    elif argument == "direction":
        good = isinstance(value, str) and value in DIRECTIONS
    else:
        listed = [value] if isinstance(value, str) else value
        good = isinstance(listed, list) and all(isinstance(key, str) and key for key in listed)
        good = good and bool(listed)
    if not good:
        found("argument_missing", f"{name} needs {argument}; it is {show(value)}")


def _check_space(flat: Flat, spec: ActionSpec | None, rules: Rules, found: Found) -> Space | None:
    own = flat.get("coordinate_space")
    if own is not None and own not in spaces.SPACES:
        found("space_unknown", f"{show(own)} is none of {', '.join(spaces.SPACES)}")
        return None
    space = spaces.as_space(own) if own is not None else rules.space
    placed = flat.get("coordinates") is not None or flat.get("bbox") is not None
    if space is None and placed and not (spec and spec.point == "none"):
        found("space_undeclared", "say which with coordinate_space in the row or --space")
    return space


def _check_points(
    flat: Flat, spec: ActionSpec | None, space: Space | None, size: Size | None, found: Found
) -> Point | None:
    if spec is not None and spec.point == "none":
        return None
    value = flat.get("coordinates")
    if value is None:
        if spec is not None and spec.point == "required":
            found("coordinates_missing", f"{spec.tool} needs coordinates")
        return None
    point = _placed("coordinates", value, space, size, found)
    if spec is not None and spec.argument == "end_coordinates":
        end = flat.get("end_coordinates")
        if end is None:
            found("argument_missing", "drag needs end_coordinates")
        else:
            _placed("end_coordinates", end, space, size, found)
    return point


def _placed(
    name: str, value: object, space: Space | None, size: Size | None, found: Found
) -> Point | None:
    point = point_of(value)
    if point is None:
        found("coordinates_invalid", f"{name} is {show(value)}, expected two finite numbers")
        return None
    if space is None or (space == "pixels" and size is None):
        return point
    if not spaces.inside(point, space, size):
        limit = spaces.extent(space, size)
        found(
            "coordinates_range",
            f"{name} is {show(value)}, outside {space} (0 to {limit[0]:g}, 0 to {limit[1]:g})",
        )
    return point


def _check_box(
    flat: Flat, space: Space | None, size: Size | None, point: Point | None, found: Found
) -> Box | None:
    value = flat.get("bbox")
    if value is None:
        return None
    box = box_of(value)
    if box is None:
        found("box_invalid", f"bbox is {show(value)}, expected four finite numbers")
        return None
    if not (box[0] < box[2] and box[1] < box[3]):
        found("box_invalid", f"bbox is {show(value)}: corners swapped, or width, height given")
        return None
    if space is not None and (space != "pixels" or size is not None):
        limit = spaces.extent(space, size)
        if box[0] < 0 or box[1] < 0 or box[2] > limit[0] or box[3] > limit[1]:
            found("box_range", f"bbox is {show(value)}, outside {space}")
    if point is not None and not spaces.contains(box, point):
        found("point_outside_box", f"{list(point)} is not in {list(box)}")
    return box


def _check_elements(flat: Flat, place: _Place, rules: Rules, found: Found) -> None:
    value = flat.get("elements")
    if value is None:
        return
    try:
        boxes = element_boxes(value)
    except LabError as error:
        found("elements_invalid", str(error)[:300])
        return
    if len(boxes) > rules.max_elements:
        found("elements_many", f"{len(boxes)} elements, at most {rules.max_elements} asked for")
    point, space = place.point, place.space
    if not (rules.point_in_elements and boxes) or place.box is not None:
        return
    if point is None or space is None or (space == "pixels" and place.size is None):
        return
    unit = spaces.point_to_unit(point, space, place.size)
    if not any(spaces.contains(box, unit) for box in boxes):
        found("point_outside_elements", f"none of {len(boxes)} elements is at {list(point)}")


def _check_instruction(flat: Flat, place: _Place, rules: Rules, found: Found) -> str | None:
    text = flat.get("instruction")
    if not isinstance(text, str) or not text.strip():
        found("instruction_missing", f"instruction is {show(text)}")
        return None
    low, high = rules.instruction_chars
    length = len(text.strip())
    if length < low:
        found("instruction_short", f"{length} characters, at least {low} asked for")
    if length > high:
        found("instruction_long", f"{length} characters, at most {high} asked for")
    if rules.languages and (problem := language_problem(text[:2000], rules.languages)):
        found("instruction_language", problem)
    if problem := leak(text[:2000], place.point, place.box, place.space, place.size):
        found("instruction_leak", problem)
    return text


def _by(size: Size) -> str:
    return f"{size[0]}x{size[1]}"
