"""The actions a sample may have, what each needs, and how it maps to the `computer` tool.

| sample         | tool           | point    | needs                          |
|----------------|----------------|----------|--------------------------------|
| click          | click          | required | (`button`)                     |
| double_click   | double_click   | required |                                |
| triple_click   | triple_click   | required |                                |
| move           | move           | required |                                |
| drag           | drag           | required | an end point                   |
| scroll         | scroll         | allowed  | `direction` (`amount`: clicks) |
| type           | type           | allowed  | `text`                         |
| key (or press) | press          | none     | `keys`                         |
| wait           | wait           | none     | (`seconds`)                    |
| finish         | finish         | none     | (`text`, the answer)           |

Invariant: an action outside this table is unknown; none is repaired into a similar one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Need = Literal["required", "allowed", "none"]


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """What one action of a sample looks like."""

    tool: str
    """The action's name in the computer tool."""
    point: Need
    argument: str | None = None
    """The one argument it cannot do without, besides the point."""


ACTIONS: dict[str, ActionSpec] = {
    "click": ActionSpec("click", "required"),
    "double_click": ActionSpec("double_click", "required"),
    "triple_click": ActionSpec("triple_click", "required"),
    "move": ActionSpec("move", "required"),
    "drag": ActionSpec("drag", "required", "end_coordinates"),
    "scroll": ActionSpec("scroll", "allowed", "direction"),
    "type": ActionSpec("type", "allowed", "text"),
    "key": ActionSpec("press", "none", "keys"),
    "wait": ActionSpec("wait", "none"),
    "finish": ActionSpec("finish", "none"),
}
SAME = {"press": "key"}
"""The tool's own name for a sample's action: the only synonym."""
FROM_TOOL = {spec.tool: name for name, spec in ACTIONS.items()}
DIRECTIONS = ("up", "down", "left", "right")
