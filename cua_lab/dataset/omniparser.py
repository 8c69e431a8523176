"""Element lists as OmniParser writes them, without OmniParser.

`get_som_labeled_img` returns, and `POST /parse/` answers with, a `parsed_content_list`:

    {"type": "text" | "icon",
     "bbox": [x0, y0, x1, y1],            fractions of width and height, always
     "interactivity": false,              text that OCR found outside icons: false; icons: true
     "content": "Replace",                OCR text or a caption; null before captioning
     "source": "box_ocr_content_ocr" | "box_yolo_content_ocr" | "box_yolo_content_yolo"}

Accepted as well: the whole answer (`{"parsed_content_list": [...], ...}`), and the text form that
the demo prints (`icon 3: {'type': ..., ...}`, one a line). Unknown fields survive in `extra`.

Invariant: an element's box is in 0-1, with x0 <= x1 and y0 <= y1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cua_lab.dataset.jsonl import show
from cua_lab.dataset.spaces import Box, Point, contains
from cua_lab.errors import LabError
from cua_lab.pictures import to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

FIELDS = ("type", "bbox", "interactivity", "content", "source")
SLACK = 0.01
"""OmniParser's detections may cross the edge by a rounding; a box beyond this is another space."""


@dataclass(frozen=True, slots=True)
class Element:
    """One detected piece of a screen."""

    type: str
    bbox: Box
    interactivity: bool
    content: str | None
    source: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x0, y0, x1, y1 = self.bbox
        if not (-SLACK <= x0 <= x1 <= 1 + SLACK and -SLACK <= y0 <= y1 <= 1 + SLACK):
            raise LabError(
                f"an element's bbox is {list(self.bbox)}; OmniParser writes x0, y0, x1, y1 as"
                " fractions of width and height (0-1): divide pixel boxes by the image's size"
            )

    @property
    def area(self) -> float:
        """Fraction of the screen."""
        return (self.bbox[2] - self.bbox[0]) * (self.bbox[3] - self.bbox[1])

    def to_row(self) -> dict[str, Any]:
        """The element as OmniParser writes it."""
        row = {
            "type": self.type,
            "bbox": list(self.bbox),
            "interactivity": self.interactivity,
            "content": self.content,
        }
        if self.source is not None:
            row["source"] = self.source
        return row | dict(self.extra)


def read_elements(parsed: Any) -> tuple[Element, ...]:
    """Elements from a list, from the server's whole answer, or from the demo's text."""
    if isinstance(parsed, Mapping):
        parsed = parsed.get("parsed_content_list")
    if isinstance(parsed, str):
        parsed = _from_text(parsed)
    if not isinstance(parsed, (list, tuple)):
        raise LabError(
            f"elements are {type(parsed).__name__}; expected OmniParser's parsed_content_list"
        )
    return tuple(_element(item, index) for index, item in enumerate(parsed))


def element_boxes(parsed: Any) -> list[Box]:
    """The boxes alone, checked as `read_elements` checks them and six times as fast."""
    boxes = []
    for item in parsed if type(parsed) is list else ():
        box = _plain_box(item)
        if box is None:
            break
        boxes.append(box)
    else:
        if type(parsed) is list:
            return boxes
    return [element.bbox for element in read_elements(parsed)]


_NUMBERS = frozenset({int, float})
_WORDS = frozenset({str, type(None)})


def _plain_box(item: Any) -> Box | None:
    """The box of an element that is as it should be; `None` sends it to the thorough reader."""
    if type(item) is not dict or type(item.get("type", "icon")) is not str:
        return None
    box = item.get("bbox")
    if type(box) is not list or len(box) != 4 or type(item.get("content")) not in _WORDS:
        return None
    x0, y0, x1, y1 = box
    if not _NUMBERS.issuperset(map(type, box)):
        return None
    if not (-SLACK <= x0 <= x1 <= 1 + SLACK and -SLACK <= y0 <= y1 <= 1 + SLACK):
        return None
    return x0, y0, x1, y1


def _element(item: Any, index: int) -> Element:
    if isinstance(item, Element):
        return item
    if not isinstance(item, Mapping):
        raise LabError(
            f"element {index} is {show(item)}; expected an object with {', '.join(FIELDS)}"
        )
    box = item.get("bbox")
    if not isinstance(box, (list, tuple)) or len(box) != 4 or not all(map(_number, box)):
        raise LabError(f"element {index} has bbox {show(box)}; expected four numbers from 0 to 1")
    kind, content = item.get("type", "icon"), item.get("content")
    if not isinstance(kind, str) or not (content is None or isinstance(content, str)):
        raise LabError(
            f"element {index} has type {show(kind)} and content {show(content)}; expected strings"
        )
    return Element(
        type=kind,
        bbox=(float(box[0]), float(box[1]), float(box[2]), float(box[3])),
        interactivity=_flag(item.get("interactivity", False)),
        content=content,
        source=item.get("source"),
        extra={key: value for key, value in item.items() if key not in FIELDS},
    )


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < 1e12


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else value in (1, "True", "true")


def _from_text(text: str) -> list[Any]:
    items = []
    for line in filter(None, map(str.strip, text.splitlines())):
        body = re.sub(r"^\s*(icon|text)\s*\d+\s*:\s*", "", line)
        try:
            items.append(ast.literal_eval(body))
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise LabError(
                f"cannot read the element line {line[:80]!r};"
                " expected `icon 3: {'type': ..., 'bbox': [...], ...}`"
            ) from error
    return items


def smallest_at(elements: tuple[Element, ...], point: Point) -> Element | None:
    """The smallest element under a point (0-1): what a click there would reach."""
    hits = [element for element in elements if contains(element.bbox, point)]
    return min(hits, key=lambda element: element.area, default=None)


def draw(image: Image, elements: tuple[Element, ...], *, target: Box | None = None) -> Image:
    """A copy of the screenshot with numbered boxes; icons blue, text grey, the target red."""
    from PIL import ImageDraw

    copy = to_rgb(image)
    pen = ImageDraw.Draw(copy)
    for index, element in enumerate(elements):
        box = _pixels(element.bbox, copy.size)
        colour = "#1f6feb" if element.interactivity else "#8b949e"
        pen.rectangle(box, outline=colour)
        pen.text((box[0] + 2, box[1] + 1), str(index), fill=colour)
    if target is not None:
        pen.rectangle(_pixels(target, copy.size), outline="#d1242f", width=2)
    return copy


def _pixels(box: Box, size: tuple[int, int]) -> Box:
    """The outline's pixels; the right and bottom ones are the last inside the box."""
    x0, y0 = box[0] * size[0], box[1] * size[1]
    return (x0, y0, max(x0, box[2] * size[0] - 1), max(y0, box[3] * size[1] - 1))
