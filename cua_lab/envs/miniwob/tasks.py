"""Curated MiniWoB++ tasks: `tasks` to train on, `held_out` never to be trained on; `split` by name.

Both hold pages that the experts solve. The held-out pages ask for the skills of the training pages
(click what is named, fill in, choose, drag) on layouts that training does not show.
"""

from __future__ import annotations

from hud.eval import Task

from cua_lab.envs.miniwob import page_urls as pages
from cua_lab.envs.miniwob.env import env
from cua_lab.errors import LabError

TRAINING = (
    "click-test", "click-test-2", "click-button", "click-link", "click-dialog", "click-tab",
    "click-option", "click-checkboxes", "click-color", "click-collapsible", "click-widget",
    "focus-text", "enter-text", "enter-password", "login-user", "choose-list", "use-spinner",
    "use-slider", "grid-coordinate", "drag-box", "read-table", "copy-paste", "scroll-text-2",
    "use-autocomplete", "simple-arithmetic",
)  # fmt: skip
HELD_OUT = (
    "click-test-transfer", "click-button-sequence", "click-dialog-2", "click-tab-2-easy",
    "click-checkboxes-transfer", "click-collapsible-2", "focus-text-2", "enter-text-2",
    "text-transform", "form-sequence-2", "read-table-2", "copy-paste-2", "unicode-test",
    "drag-single-shape", "simple-algebra",
)  # fmt: skip


def _task(page: str) -> Task:
    task = env.templates["miniwob"](page=page, seed=0)
    task.slug = page
    return task


tasks = [_task(page) for page in TRAINING]
held_out = [_task(page) for page in HELD_OUT]


def split(name: str) -> list[Task]:
    """`training`, `held-out`, or `all`: every page of the benchmark."""
    if name == "training":
        return list(tasks)
    if name == "held-out":
        return list(held_out)
    if name == "all":
        return [_task(page) for page in pages.names()]
    raise LabError(f"no split {name!r} of MiniWoB++: give training, held-out or all")
