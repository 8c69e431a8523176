"""Preflight: credentials, the env package and its rows. Each function yields its `Check`s."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cua_lab.checks import Check
from cua_lab.env_package import env_package as find_package
from cua_lab.errors import LabError
from cua_lab.hud_quirks import env_of, task_without_args, template_parameters
from cua_lab.miles.recipe import MilesRecipe
from cua_lab.play.api_keys import DAYTONA_KEY
from cua_lab.play.containers import image_source
from cua_lab.play.runtimes import make_runtime
from cua_lab.served_env import is_served
from cua_lab.tasks import load_tasks, read_rows, with_args

EMBEDDED = ("lab", "cua_lab.envs.lab")
REACTS_MS = 150
"""Within this no page of 36 had not moved."""


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
    """Whether the package plays where the recipe places it."""
    package, kind = recipe.tasks.package, recipe.runtime.kind
    if is_served(package) or kind in ("local", "subprocess"):
        make_runtime(package, kind, concurrency=recipe.runtime.max_sandboxes)
        found = find_package(package)
        found.check_concurrency(recipe.runtime.max_sandboxes, "runtime.max_sandboxes")
        saw = f"{package}: env {found.name!r}, templates {', '.join(found.templates)}"
        yield Check("env package", "ok", f"{saw}; plays {kind}")
        return
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
    templates = _templates(recipe.tasks.package)
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


def _templates(package: str) -> dict[str, Any]:
    """A task of each template: a public one, or one without arguments of its own."""
    found = find_package(package)
    public = {task.id: task for task in found.tasks}
    for id, template in found.templates.items():
        if id not in public:
            public[id] = task_without_args(template.env, id)
    return public


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
    most = recipe.agent.max_turns
    fewest = min(_argument(task, templates, "turns") or most for task in tasks)
    screens = {
        (_argument(task, templates, "width"), _argument(task, templates, "height"))
        for task in tasks
    }
    wanted = (recipe.screen.width, recipe.screen.height)
    wrong = []
    if fewest < most:
        wrong.append(f"rows end after {fewest} turns, the recipe has {most}")
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
    """The command that makes rows, with what the package's templates take and nothing else."""
    wanted = {
        "turns": recipe.agent.max_turns,
        "width": recipe.screen.width,
        "height": recipe.screen.height,
    }
    slug, takes = _first_task(recipe)
    args = {name: value for name, value in wanted.items() if name in takes}
    groups = recipe.train.prompts * recipe.train.rollouts
    words = [
        f"cua-lab data mint {recipe.tasks.data or 'rows.jsonl'} --package {recipe.tasks.package}",
        f"--slug {slug}",
        f"--seeds 0:{groups}" if "seed" in takes else "",
        f"--args '{json.dumps(args)}'" if args else "",
    ]
    return " ".join(filter(None, words))


def _first_task(recipe: MilesRecipe) -> tuple[str, set[str]]:
    """Slug and argument names of a task to show; of the lab's where the package cannot be asked."""
    try:
        task = load_tasks(recipe.tasks.package)[0]
    except LabError:
        return "SLUG", {"seed", "turns", "width", "height"}
    env = env_of(task)
    takes = {*task.args} if env is None else {*template_parameters(env, task.id)}
    return task.slug or "SLUG", takes


def screens(recipe: MilesRecipe) -> Iterator[Check]:
    """Whether screenshots wait for the move, and keys have somewhere to go."""
    tool = recipe.tool
    if recipe.tasks.package in EMBEDDED:
        yield Check("screens", "ok", "the embedded desktop is always up to date")
        return
    if not tool.quiet_ms:
        saw = "tool.quiet_ms is 0: on a real browser 20 of 36 screenshots came before the move"
        yield Check("screens", "fail", saw, "--set tool.quiet_ms=40 --set tool.react_ms=150")
        return
    if tool.react_ms < REACTS_MS:
        saw = f"tool.react_ms is {tool.react_ms}: at 60, 6 of 48 screenshots came before the move"
        yield Check("screens", "warn", saw, f"--set tool.react_ms={REACTS_MS}")
        return
    focus = "clicked before the first key" if tool.focus_click else "not clicked before a key"
    saw = f"settled for {tool.quiet_ms} ms, {tool.react_ms} ms to react; {focus}"
    yield Check("screens", "ok", f"{saw} (tool.focus_click, for pages that open without keyboard)")
