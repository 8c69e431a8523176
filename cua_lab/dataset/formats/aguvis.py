"""Aguvis-style conversations: one screenshot, then turns of instruction and PyAutoGUI code.

| public field                                  | ours                                          |
|-----------------------------------------------|-----------------------------------------------|
| `image`                                       | `screenshot`                                  |
| `conversations[i]` with `from: human`         | `instruction`: `value` without `<image>`      |
| `conversations[i+1]` with `from: gpt`: code   | `action` and its fields, see `pyautogui.py`   |
| `bbox_gt` of the gpt turn (GUI-Actor's files) | `bbox`                                        |
| `recipient` (`os`, `all`), `end_turn`, ...    | `aguvis.turn`                                 |
| `from: system` turns, thoughts                | `aguvis.before`                               |
| any further field                             | `aguvis.row`                                  |

Coordinates are fractions (0-1). A stage-1 row holds many pairs over one screenshot and gives a
sample for each. In stage 2 a gpt turn with `recipient: all` is a thought: it is kept with the
action that follows it. The collection joins many sources (SeeClick, OmniACT, RICO, AITW, ...), each
under its own licence: look at the subset's card before you redistribute or train for sale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from cua_lab.dataset.formats.fields import Row, need, rest
from cua_lab.dataset.formats.pyautogui import parse_actions
from cua_lab.dataset.grounding import box_of
from cua_lab.errors import LabError

LICENCE = "per subset, see its card"
"""Of the public rows; `cua-lab data convert` says it."""


def read_conversation(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """The pairs of a conversation as samples."""
    screenshot = str(PurePosixPath(images, need(row, "image", str)))
    about = {"row": rest(row, "image", "conversations")}
    asked: str | None = None
    before: list[Mapping[str, Any]] = []
    samples: list[Row] = []
    for turn in need(row, "conversations", list):
        who, value = need(turn, "from", str), need(turn, "value", str)
        if who == "human":
            asked = re.sub(r"\s*<image>\s*", " ", value).strip()
        elif who == "gpt" and turn.get("recipient") != "all":
            if asked is None:
                raise LabError("a gpt turn comes before any human turn")
            extra = {**about, "turn": rest(turn, "from", "value", "bbox_gt"), "before": before}
            samples += _pair(screenshot, asked, turn, extra)
            before = []
            continue
        if who != "human":
            before = [*before, turn]
    if before:
        raise LabError("the last turns hold no action for the os; the row cannot be converted")
    return samples


def _pair(screenshot: str, asked: str, turn: Mapping[str, Any], extra: Row) -> list[Row]:
    rows = []
    for action in parse_actions(turn["value"]):
        shared: Row = {"screenshot": screenshot, "instruction": asked, "aguvis": extra}
        box = box_of(turn.get("bbox_gt"))
        if box is not None:
            shared["bbox"] = list(box)
        placed = box is not None or "coordinates" in action or "end_coordinates" in action
        rows.append(shared | action | ({"coordinate_space": "0-1"} if placed else {}))
    return rows
