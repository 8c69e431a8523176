"""AgentNet (OpenCUA): recorded desktop tasks, one JSONL line a task. Licence: MIT.

| public field                           | ours                                                  |
|----------------------------------------|-------------------------------------------------------|
| `traj[i].image`                        | `screenshot`                                          |
| `traj[i].value.action`                 | `instruction`: what this step does, in words          |
| `traj[i].value.code`                   | `action` and its fields, see `pyautogui.py`           |
| `task_id`, `traj[i].index`             | `id`, `{task_id}/{index}`                             |
| length of `traj`                       | `steps`                                               |
| `traj[i].value.{observation, thought,` |                                                       |
| `reflection, last_step_correct,`       |                                                       |
| `last_step_redundant}`                 | `agentnet.value`                                      |
| `instruction, natural_language_task,`  |                                                       |
| `actual_task, task_completed,`         |                                                       |
| `alignment_score, efficiency_score,`   |                                                       |
| `task_difficulty, reason`, ...         | `agentnet.task`                                       |
| any further field of a step            | `agentnet.step`                                       |

Coordinates are fractions (0-1). `last_step_correct` judges the step BEFORE the one it stands at,
and is a model's verdict, not a person's: it is shifted here to the step it speaks of, as
`agentnet.correct` (`None` where nothing was said). A step with several actions gives several rows.
A click without a point happens where the step before it left the pointer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from cua_lab.dataset.formats.fields import Row, need, rest
from cua_lab.dataset.formats.pyautogui import parse_step

LICENCE = "MIT"
"""Of the public rows; `cua-lab data convert` says it."""


def read_task(row: Mapping[str, Any], images: str = "") -> list[Row]:
    """A task's steps as samples."""
    steps = need(row, "traj", list)
    task = rest(row, "traj", "task_id")
    samples: list[Row] = []
    pointer: list[Any] | None = None
    for position, step in enumerate(steps):
        after = steps[position + 1] if position + 1 < len(steps) else None
        verdict = None if after is None else need(after, "value", Mapping).get("last_step_correct")
        code = need(need(step, "value", Mapping), "code", str)
        actions, pointer = parse_step(code, pointer)
        samples += _step(row, task, step, position, len(steps), verdict, images, actions)
    return samples


def _step(
    row: Mapping[str, Any],
    task: Row,
    step: Mapping[str, Any],
    position: int,
    steps: int,
    correct: bool | None,
    images: str,
    actions: list[Row],
) -> list[Row]:
    value = need(step, "value", Mapping)
    index = step.get("index", position)
    about = {
        "task": task,
        "value": rest(value, "action", "code"),
        "step": rest(step, "value", "image", "index"),
        "correct": correct,
    }
    shared = {
        "screenshot": str(PurePosixPath(images, need(step, "image", str))),
        "instruction": need(value, "action", str),
        "steps": steps,
        "id": f"{row.get('task_id')}/{index}",
        "agentnet": about,
    }
    rows = []
    for action in actions:
        placed = "coordinates" in action or "end_coordinates" in action
        rows.append(shared | action | ({"coordinate_space": "0-1"} if placed else {}))
    return rows
