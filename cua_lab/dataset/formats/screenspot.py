"""ScreenSpot and ScreenSpot-v2: one element to find on one screenshot. Licence: Apache-2.0 (both).

Two forms of the same data:

| public field                     | ours          | note                                          |
|----------------------------------|---------------|-----------------------------------------------|
| `img_filename` (GitHub, v2)      | `screenshot`  | `screenspot_{web,desktop,mobile}_v2.json`     |
| `file_name` (Hub, parquet)       | `screenshot`  | its `image` bytes are not carried             |
| `instruction`                    | `instruction` |                                               |
| `bbox`                           | `bbox`        | original, v2: x, y, WIDTH, HEIGHT in pixels   |
|                                  |               | Hub: x0, y0, x1, y1 as fractions (0-1)        |
| `data_type` (`text` or `icon`)   | `target_type` |                                               |
| `data_source` (`ios`, `web`, ..) | `screenspot`  | with any further field                        |

The action is a click on the box's centre. The two forms differ in space and in the meaning of the
last two numbers, which is why each has its own reader: nothing in a row tells them apart for sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from cua_lab.dataset.formats.fields import Row, need, rest
from cua_lab.dataset.grounding import box_of
from cua_lab.dataset.spaces import Box, Space
from cua_lab.errors import LabError

LICENCE = "Apache-2.0"
"""Of the public rows; `cua-lab data convert` says it."""


def read_original(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """A row of the GitHub release or of v2: pixels, x y width height."""
    x, y, width, height = _numbers(row)
    name = need(row, "img_filename", str)
    return [_sample(row, name, images, (x, y, x + width, y + height), "pixels", "img_filename")]


def read_hub(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """A row of the Hub's parquet form: fractions, two corners."""
    return [_sample(row, need(row, "file_name", str), images, _numbers(row), "0-1", "file_name")]


def _numbers(row: Mapping[str, Any]) -> Box:
    box = box_of(row.get("bbox"))
    if box is None:
        raise LabError(f"bbox is {row.get('bbox')!r}; expected four finite numbers")
    return box


def _sample(
    row: Mapping[str, Any], name: str, images: str, box: Box, space: Space, name_field: str
) -> Row:
    known = {
        "screenshot": str(PurePosixPath(images, name)),
        "instruction": need(row, "instruction", str),
        "action": "click",
        "coordinate_space": space,
        "coordinates": [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2],
        "bbox": list(box),
    }
    if row.get("data_type") is not None:
        known["target_type"] = row["data_type"]
    others = rest(row, name_field, "instruction", "bbox", "data_type", "image")
    return known | {"screenspot": others}
