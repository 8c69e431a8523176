"""Grounding samples drawn here: screens of the lab's apps with boxes exact by construction.

    app.reset(seed) ──draw──▶ PNG     app.boxes ──▶ box, point, elements     template ──▶ words

Coordinates are in pixels of the screenshot; `conversations.in_space` changes that. A box covers the
pixels left..right-1, so its corner is `right - 1`: a click on either corner is a hit in the app.

Invariant: the same arguments give the same files, byte for byte; a sample's instruction fits
exactly one thing on its screen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.dataset.grounding import GroundingSample
from cua_lab.dataset.omniparser import Element
from cua_lab.dataset.spaces import Box, Size
from cua_lab.desktop.apps.targets import Targets
from cua_lab.desktop.apps.todo import Todo
from cua_lab.files import writing

NAMED = (
    "Click the {name}.",
    "Click on the {name}.",
    "Press the {name}.",
    "Select the {name}.",
    "Find the {name} and click it.",
    "Please click the {name}.",
)
"""Instruction templates for something with a name."""


@dataclass(frozen=True, slots=True)
class NamedBox:
    """Something on a screen that words can single out."""

    name: str
    box: Box
    """Pixels, corners included."""
    type: str = "icon"
    content: str | None = None
    """Text that is written on it."""
    clickable: bool = True


def sample_for(
    target: NamedBox,
    things: Sequence[NamedBox],
    *,
    screenshot: str,
    size: Size,
    instruction: str,
    draw: random.Random,
    extra: dict[str, Any],
    id: str,
) -> GroundingSample:
    """A click somewhere in the middle half of the target."""
    x0, y0, x1, y1 = target.box
    point = (
        float(round(x0 + (x1 - x0) * draw.uniform(0.25, 0.75))),
        float(round(y0 + (y1 - y0) * draw.uniform(0.25, 0.75))),
    )
    return GroundingSample(
        screenshot=screenshot,
        instruction=instruction,
        action="click",
        space="pixels",
        coordinates=point,
        bbox=target.box,
        elements=tuple(_element(thing, size) for thing in things),
        image_size=size,
        target_type=target.type,
        steps=1,
        id=id,
        extra=extra,
    )


def _element(thing: NamedBox, size: Size) -> Element:
    x0, y0, x1, y1 = thing.box
    box = (x0 / size[0], y0 / size[1], (x1 + 1) / size[0], (y1 + 1) / size[1])
    return Element(thing.type, box, thing.clickable, thing.content)


def targets_samples(
    folder: str | Path,
    count: int,
    *,
    seed: int = 0,
    levels: Sequence[int] = (1, 2, 3),
    sizes: Sequence[Size] = ((128, 128),),
    templates: Sequence[str] = NAMED,
) -> Iterator[GroundingSample]:
    """Samples of the targets app: level and size in turn, one screen a sample."""
    apps = {
        (level, size): Targets(level, width=size[0], height=size[1])
        for level in levels
        for size in sizes
    }
    for index in range(count):
        level, size = levels[index % len(levels)], sizes[index // len(levels) % len(sizes)]
        app, draw = apps[level, size], random.Random(f"targets/{seed}/{index}")
        app.reset(draw.randrange(2**31))
        name = f"targets-{seed}-{index:06d}.png"
        save_screen(app, folder, name)
        things = _target_things(app)
        yield sample_for(
            things[0],
            things,
            screenshot=name,
            size=size,
            instruction=draw.choice(list(templates)).format(name=things[0].name),
            draw=draw,
            extra={"source": "targets", "level": level},
            id=f"targets/{seed}/{index}",
        )


def _target_things(app: Targets) -> list[NamedBox]:
    return [
        NamedBox(
            name=f"shape labelled {thing.label}" if thing.label else f"{thing.colour} button",
            box=_corners(thing.box),
            type="text" if thing.label else "icon",
            content=thing.label or f"{thing.colour} {thing.shape}",
        )
        for thing in app.things
    ]


def todo_samples(
    folder: str | Path,
    count: int,
    *,
    seed: int = 0,
    sizes: Sequence[Size] = ((320, 320),),
    templates: Sequence[str] = NAMED,
) -> Iterator[GroundingSample]:
    """Samples of the to-do app: its field, its button, the check box and the bin of each task."""
    apps = [Todo(width=width, height=height) for width, height in sizes]
    for index in range(count):
        app, draw = apps[index % len(apps)], random.Random(f"todo/{seed}/{index}")
        app.reset(draw.randrange(2**31))
        name = f"todo-{seed}-{index:06d}.png"
        save_screen(app, folder, name)
        things = _todo_things(app)
        target = draw.choice(things)
        yield sample_for(
            target,
            things,
            screenshot=name,
            size=app.size,
            instruction=draw.choice(list(templates)).format(name=target.name),
            draw=draw,
            extra={"source": "todo"},
            id=f"todo/{seed}/{index}",
        )


def _todo_things(app: Todo) -> list[NamedBox]:
    things = []
    for widget, box in app.boxes.items():
        kind, _, number = widget.partition(":")
        if kind in ("field", "add"):
            name = "text field" if kind == "field" else "add button"
            things.append(NamedBox(name, _corners(box), content=kind))
            continue
        what = "check box" if kind == "check" else "delete button"
        text = app.items[int(number)].text
        things.append(NamedBox(f'{what} of "{text}"', _corners(box), content=kind))
    return things


def _corners(box: tuple[int, int, int, int]) -> Box:
    return float(box[0]), float(box[1]), float(box[2] - 1), float(box[3] - 1)


def save_screen(app: Any, folder: str | Path, name: str) -> None:
    """What an app shows, as a PNG in a folder."""
    with writing(Path(folder, name)) as out:
        app.draw().save(out, format="PNG", compress_level=1)
