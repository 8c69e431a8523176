"""A `Frame` is one screenshot and what the policy did when it saw it.

Invariant: a point is a fraction of the screen, (0, 0) top left and (1, 1) bottom right, so that one
frame can be drawn at any size whatever coordinate space the model speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from cua_lab.pictures import data_url, png_bytes, read_rgb
from cua_lab.play.reading import Transcript, transcripts
from cua_lab.viz.visible import visible_label

SPACE_UNITS = {"0-1000": 1000.0, "0-1": 1.0}
"""Coordinate spaces that do not depend on the screen, and the value that means its far edge."""

MOST_TEXT = 400
"""Characters that are shown of a typed text."""
WORDS = 80
"""Characters that are shown of an answer without a call."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One screenshot with the action that answered it."""

    image: Image.Image
    """The screen as the policy saw it."""
    point: tuple[float, float] | None = None
    """Where it clicked or moved, as fractions of width and height; `None` for other actions."""
    keys: tuple[str, ...] = ()
    """The keys it pressed, in order."""
    label: str = ""
    """The action in a few words, e.g. `click (435, 210)`."""
    thought: str = ""
    """What it said before."""
    misread: tuple[tuple[int, str], ...] = ()
    """Places of the thought that say something else than the screen, and what is there."""

    def __post_init__(self) -> None:
        if self.point is not None and not all(0.0 <= v <= 1.0 for v in self.point):
            raise ValueError(
                f"a frame's point is a fraction of the screen in 0..1, got {self.point};"
                " divide by the image's size or by 1000 first"
            )

    @classmethod
    def of(
        cls,
        image: Image.Image,
        action: Mapping[str, Any] | None = None,
        *,
        coordinate_space: str = "0-1000",
    ) -> Frame:
        """A frame from the arguments of a `computer` call, in the space the policy speaks."""
        action = action or {}
        keys = action.get("keys") or ()
        keys = keys if isinstance(keys, (list, tuple)) else (keys,)
        keys = tuple(visible_label(str(key)) for key in keys)
        point = action_point(action, image.size, coordinate_space)
        return cls(image=image, point=point, keys=keys, label=action_label(action))

    def thinking(self, thought: str, reading: str | None) -> Frame:
        """The same with a thought, marked against what a right transcript says."""
        wrong = () if reading is None else Transcript(thought, reading).wrong
        return replace(
            self, thought=thought, misread=tuple((at, (reading or "")[at]) for at in wrong)
        )


def frames_of(episode: Any, *, coordinate_space: str = "0-1000") -> tuple[Frame, ...]:
    """The frames of a `cua_lab.play.episode.Episode`, in the order its prompts show them.

    A screen has a frame for each answer that was given to it: several where calls were refused and
    brought no new one. Where the recipe does not show the first screen, the first action has no
    frame. An answer without a call is labelled with its words.
    """
    shown = screenshot_frames(episode, coordinate_space=coordinate_space)
    return tuple(frame for frames in shown for frame in frames)


def screenshot_frames(
    episode: Any, *, coordinate_space: str = "0-1000"
) -> tuple[tuple[Frame, ...], ...]:
    """The same for each screenshot: one frame or more; one without an action where it had no
    answer."""
    told: list[list[Any]] = [[] for _ in episode.screenshots]
    for action, transcript in zip(episode.actions, transcripts(episode), strict=True):
        if action.saw is not None:
            told[action.saw].append((action, transcript))
    return tuple(
        tuple(_told(read_rgb(png), a, t, coordinate_space) for a, t in answers or [(None, None)])
        for png, answers in zip(episode.screenshots, told, strict=True)
    )


def _told(
    image: Image.Image, action: Any, transcript: Transcript | None, coordinate_space: str
) -> Frame:
    return _frame(image, action, coordinate_space).thinking(
        action.thought if action is not None and action.arguments is not None else "",
        None if transcript is None else transcript.reading,
    )


def _frame(image: Image.Image, action: Any, coordinate_space: str) -> Frame:
    if action is None or action.arguments is not None:
        called = None if action is None else action.arguments
        return Frame.of(image, called, coordinate_space=coordinate_space)
    words = " ".join(action.text.split())
    return Frame(image, label=f"said “{visible_label(words[:WORDS])}”" if words else "")


def action_point(
    action: Mapping[str, Any], size: tuple[int, int], coordinate_space: str
) -> tuple[float, float] | None:
    """The action's x and y as fractions; `None` without both or when they lie off the screen."""
    x, y = action.get("x"), action.get("y")
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        return None
    unit = SPACE_UNITS.get(coordinate_space)
    point = (x / (unit or size[0]), y / (unit or size[1]))
    return point if all(0.0 <= v <= 1.0 for v in point) else None


def action_label(action: Mapping[str, Any]) -> str:
    """`click (435, 210)`, `press left down`, `type "milk"`; empty without an action. What a model
    said is shown, whatever it is: see `visible`."""
    return visible_label(_label(action))


def _label(action: Mapping[str, Any]) -> str:
    name = str(action.get("action", ""))
    if "x" in action and "y" in action:
        return f"{name} ({action['x']}, {action['y']})"
    keys = action.get("keys")
    if keys:
        listed = keys if isinstance(keys, (list, tuple)) else [keys]
        return f"{name} {key_summary([str(key) for key in listed])}"
    if "text" in action:
        return f"{name} “{str(action['text'])[:MOST_TEXT]}”"
    return name


def key_summary(keys: Sequence[str]) -> str:
    """Keys in order with repeats counted: `left left down` becomes `left×2 down`."""
    runs: list[tuple[str, int]] = []
    for key in keys:
        if runs and runs[-1][0] == key:
            runs[-1] = (key, runs[-1][1] + 1)
        else:
            runs.append((key, 1))
    return " ".join(key if n == 1 else f"{key}×{n}" for key, n in runs)


def png_uri(image: Image.Image, *, max_width: int = 768) -> str:
    """The image as a `data:` address, scaled down to `max_width` so that pages stay small."""
    return data_url(png_bytes(image, compress_level=6, max_width=max_width))
