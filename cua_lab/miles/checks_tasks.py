"""Preflight: credentials, the env package and its rows. Each function yields its `Check`s."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cua_lab.checks import Check
from cua_lab.errors import LabError
from cua_lab.hud_quirks import env_of, template_parameters
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.play.api_keys import DAYTONA_KEY
from cua_lab.play.containers import image_source
from cua_lab.tasks import load_tasks, read_rows, with_args


def credentials(recipe: MilesRecipe) -> Iterator[Check]:
    if recipe.runtime.kind != "daytona":
        yield Check("credentials", "ok", f"none needed for {recipe.runtime.kind}")
        return
    path = Path(recipe.runtime.key_file).expanduser()
    write = f"write Daytona's key into it: install -D -m 600 /dev/stdin {path}"
    try:
        empty = not path.read_text(encoding="utf-8-sig").strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        seen = " (the variable is set here, but workers get paths only)"
        also = seen if os.environ.get(DAYTONA_KEY) else ""
        yield Check("credentials", "fail", f"{path}: {error.strerror}{also}", write)
        return
    if empty:
        yield Check("credentials", "fail", f"{path} is empty", write)
    elif mode & 0o077:
        saw = f"{path} can be read by others (mode {mode:o})"
        yield Check("credentials", "fail", saw, f"chmod 600 {path}")
    else:
        yield Check("credentials", "ok", f"{path} (only this path is passed on)")


def env_package(recipe: MilesRecipe) -> Iterator[Check]:
    source = image_source(recipe.tasks.package)
    copied = ", ".join(source.copied) or "nothing"
    saw = f"{source.dockerfile.parent.name}/{source.dockerfile.name} copies {copied}"
    yield Check("env package", "ok", f"{saw}, serves with: {source.command}")


def rows(recipe: MilesRecipe) -> Iterator[Check]:
    if not Path(recipe.tasks.data).is_file():
        saw = f"no file {recipe.tasks.data}" if recipe.tasks.data else "no --data given"
        yield Check("rows", "fail", saw, _mint(recipe))
        return
    rows = read_rows(recipe.tasks.data)
    if not rows:
        yield Check("rows", "fail", f"{recipe.tasks.data} has no rows", _mint(recipe))
        return
    templates = {task.id: task for task in load_tasks(recipe.tasks.package)}
    problems = [
        f"row {number}: {problem}"
        for number, row in enumerate(rows, start=1)
        if (problem := _row_problem(row["metadata"]["hud_task"], templates))
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        yield Check("rows", "fail", "; ".join(problems[:3]) + more, _mint(recipe))
        return
    yield from _row_numbers(recipe, [row["metadata"]["hud_task"] for row in rows], templates)


def _row_problem(hud_task: dict[str, Any], templates: dict[str, Any]) -> str:
    task = templates.get(hud_task["id"])
    if task is None:
        return f"no template {hud_task['id']!r}; the package has {', '.join(templates)}"
    if task.env != hud_task["env"]:
        return f"env {hud_task['env']!r}, but the package is {task.env!r}"
    try:
        with_args(task, hud_task["args"])
    except LabError as error:
        return str(error)
    return ""


def _row_numbers(
    recipe: MilesRecipe, tasks: list[dict[str, Any]], templates: dict[str, Any]
) -> Iterator[Check]:
    """Turns and screens that the rows ask for, against the recipe's."""
    fewest = min(_argument(task, templates, "turns") or recipe.agent.max_turns for task in tasks)
    screens = {
        (_argument(task, templates, "width"), _argument(task, templates, "height"))
        for task in tasks
    }
    wanted = (recipe.screen.width, recipe.screen.height)
    wrong = []
    if fewest < recipe.agent.max_turns:
        wrong.append(f"rows end after {fewest} turns, the recipe has {recipe.agent.max_turns}")
    if screens - {wanted, (None, None)}:
        odd = next(iter(screens - {wanted, (None, None)}))
        wrong.append(f"rows have screens of {odd[0]}x{odd[1]} px, costs are for {wanted}")
    if len(tasks) < recipe.train.prompts:
        wrong.append(f"{len(tasks)} rows, a step takes {recipe.train.prompts}")
    if wrong:
        yield Check("rows", "warn", "; ".join(wrong), _mint(recipe))
    else:
        yield Check("rows", "ok", f"{len(tasks)} rows, all minted by {recipe.tasks.package}")


def _argument(task: dict[str, Any], templates: dict[str, Any], name: str) -> Any:
    env = env_of(templates[task["id"]])
    parameter = None if env is None else template_parameters(env, task["id"]).get(name)
    return task["args"].get(name, parameter.default if parameter is not None else None)


def _mint(recipe: MilesRecipe) -> str:
    args = {
        "turns": recipe.agent.max_turns,
        "width": recipe.screen.width,
        "height": recipe.screen.height,
    }
    groups = recipe.train.prompts * recipe.train.rollouts
    return (
        f"cua-lab data mint {recipe.tasks.data or 'rows.jsonl'} --package {recipe.tasks.package}"
        f" --slug SLUG --seeds 0:{groups} --args '{json.dumps(args)}'"
    )
