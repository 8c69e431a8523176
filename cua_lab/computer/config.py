"""How a policy sees and drives a screen: one frozen record, from a recipe to the tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from cua_lab.computer.coordinates import SPACES, Space
from cua_lab.computer.settling import NoSettle, Settle
from cua_lab.errors import LabError
from cua_lab.ranges import Count, Natural, Range

ACTIONS = (
    "screenshot",
    "click",
    "double_click",
    "triple_click",
    "move",
    "drag",
    "type",
    "press",
    "scroll",
    "wait",
    "finish",
)


@dataclass(frozen=True, slots=True)
class ToolConfig:
    """Everything about the computer tool that a recipe may choose."""

    actions: tuple[str, ...] = field(default=ACTIONS, metadata={"null": "default"})
    """What is offered; fewer actions make a shorter schema, and the schema is in every prompt."""
    screenshot_width: Count | None = None
    """Width of screenshots in pixels, never enlarged; image tokens grow with its square. `None`:
    the desktop's own."""
    coordinate_space: Space = "pixels"
    """What x and y mean to the model: pixels of the screenshot, 0-1000 or 0-1."""
    max_keys_per_call: Count = 100
    """Entries of `keys` in one call; more are refused, none is sent."""
    max_text_chars: Count = 2000
    max_scroll_clicks: Count = 30
    max_wait_s: Annotated[float, Range(1e-3)] = 5.0
    """A longer wait is cut to this."""
    pace_ms: Natural = 20
    """Between the clicks of a double click and along a drag. X servers lose 5 of 12 double clicks
    at 0 ms and none from 5 ms on; pages that look once a frame need 16. The embedded desktop: 0."""
    screen_timeout_s: Annotated[float, Range(1e-3)] = 10.0
    """A screen that sends no frame for this long, and none on a new connection, is dead."""
    settle: Settle = field(default_factory=NoSettle)
    focus_click: bool = False
    """Click once in the middle of the screen before the first key of an episode, unless the policy
    has clicked by then: for pages that open without the keyboard. On hud-browser's 2048 a key
    without a click scored 0.0 on 4 of 4 boots, after one 1.0. Schema and prompt say so."""

    def __post_init__(self) -> None:
        unknown = [action for action in self.actions if action not in ACTIONS]
        if unknown or not self.actions:
            raise LabError(f"unknown actions {unknown}; choose some of {', '.join(ACTIONS)}")
        if self.coordinate_space not in SPACES:
            raise LabError(
                f"coordinate_space {self.coordinate_space!r} is none of {', '.join(SPACES)}"
            )
        if self.screenshot_width is not None and self.screenshot_width < 1:
            raise LabError(f"screenshot_width must be at least 1; got {self.screenshot_width}")
        for name in ("max_keys_per_call", "max_text_chars", "max_scroll_clicks"):
            if getattr(self, name) < 1:
                raise LabError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("max_wait_s", "screen_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise LabError(f"{name} must be a positive time; got {getattr(self, name)}")
        if self.pace_ms < 0:
            raise LabError(f"pace_ms must not be negative; got {self.pace_ms}")
