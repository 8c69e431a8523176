"""Task rows: which episodes a run plays, as prompt rows in JSONL.

    HUD env package ──`tasks` list──▶ select slugs ──▶ override args ──▶ repeat ──▶ rows.jsonl

One row is one episode: `{"prompt": [one chat message with the slug], "label": slug,
"metadata": {"hud_task": {"env", "id", "args", "slug"}}}`. The members of a group are adjacent,
identical rows: an episode's start state is a function of its `args` alone.

Invariant: a file of rows is whole and valid or it is not there; every mistake is one `LabError`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.errors import LabError
from cua_lab.files import write_text

if TYPE_CHECKING:
    from types import ModuleType

    from hud.eval import Task

Row = dict[str, Any]
TASK_FIELDS = ("env", "id", "args", "slug")


def load_tasks(package: str | Path) -> list[Task]:
    """The public `tasks` list of a HUD env package: a dotted name, a directory or a `.py` file."""
    from hud.eval import Task

    module = _tasks_module(package)
    tasks = getattr(module, "tasks", None)
    if not isinstance(tasks, list | tuple) or not all(isinstance(t, Task) for t in tasks):
        raise LabError(f"{module.__name__} has no list named `tasks` with HUD tasks in it")
    if not tasks:
        raise LabError(f"the `tasks` list of {package} is empty: there is nothing to mint")
    return list(tasks)


def _tasks_module(package: str | Path) -> ModuleType:
    source = Path(package)
    if source.exists():
        from hud.utils.modules import load_module

        file = source / "tasks.py" if source.is_dir() else source
        if not file.exists():
            raise LabError(f"{source} has no tasks.py: a HUD env package holds env.py and tasks.py")
        with _reading(file):
            return load_module(file)
    name = str(package)
    for wanted in (name, f"{name}.tasks"):
        if not _importable(wanted):
            raise LabError(
                f"no HUD env package {name!r} ({wanted} cannot be found): give a dotted name such "
                "as cua_lab.envs.lab, or the path of a directory with env.py and tasks.py"
            )
    with _reading(f"{name}.tasks"):
        return importlib.import_module(f"{name}.tasks")


@contextmanager
def _reading(source: str | Path) -> Iterator[None]:
    """Whatever goes wrong in somebody's package is named with it, such as one of HUD's v5."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise LabError(
            f"{source} cannot be loaded as a HUD env package ({what}); it should be Python with a"
            " list `tasks`, made with the templates of a HUD v6 Environment"
        ) from error


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def select(tasks: Sequence[Task], slugs: Iterable[str] | None) -> list[Task]:
    """The tasks with these slugs, in the order asked for; all of them when none is named."""
    if slugs is None:
        return list(tasks)
    by_slug = {task.slug: task for task in tasks}
    chosen = []
    for slug in slugs:
        if slug not in by_slug:
            raise LabError(
                f"unknown slug {slug!r}{_nearest(slug, by_slug)}; known: {', '.join(by_slug)}"
            )
        chosen.append(by_slug[slug])
    return chosen


def parse_args(text: str) -> dict[str, Any]:
    """Arguments given as JSON on a command line: one object, finite numbers only."""

    def refuse(constant: str) -> None:
        raise LabError(f"bad JSON in the arguments: {constant} is not a JSON number")

    try:
        args = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise LabError(
            f"bad JSON in the arguments: {error.msg} at character {error.pos} of {text!r}"
        ) from error
    if not isinstance(args, dict):
        raise LabError(f'the arguments must be a JSON object such as {{"seed": 7}}; got {text!r}')
    return args


def with_args(task: Task, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The task's arguments with some of them replaced; names and types are the template's."""
    from pydantic import TypeAdapter, ValidationError

    if not overrides:
        return dict(task.args)
    signature = _template(task).sig
    for name, value in overrides.items():
        if name not in signature.parameters:
            raise LabError(
                f"template {task.id!r} has no argument {name!r}"
                f"{_nearest(name, signature.parameters)}; it takes "
                f"{', '.join(signature.parameters) or 'none'}"
            )
        annotation = signature.parameters[name].annotation
        try:
            TypeAdapter(annotation).validate_python(value, strict=True)
        except ValidationError as error:
            raise LabError(
                f"argument {name!r} of template {task.id!r}: got {value!r}, "
                f"{error.errors()[0]['msg'].lower()}"
            ) from error
    return {**task.args, **overrides}


def _template(task: Task) -> Any:
    env = task._env
    if env is None or task.id not in env.templates:
        raise LabError(
            f"task {task.slug!r} was not minted by a template of its env, so its arguments cannot "
            "be checked: call the template instead of building Task(...) by hand"
        )
    return env.templates[task.id]


def mint(
    package: str | Path,
    *,
    slugs: Iterable[str] | None = None,
    args: Mapping[str, Any] | None = None,
    seeds: Iterable[int] | None = None,
    repeat: int = 1,
) -> list[Row]:
    """Prompt rows from an env package: one group of `repeat` rows per task (and per seed)."""
    if repeat < 1:
        raise LabError(f"repeat must be at least 1 (the number of rows in a group); got {repeat}")
    variants = [{}] if seeds is None else [{"seed": seed} for seed in seeds]
    if not variants:
        raise LabError("the range of seeds is empty: --seeds takes START:STOP with START < STOP")
    return [
        row_of(task, with_args(task, {**(args or {}), **variant}))
        for task in select(load_tasks(package), slugs)
        for variant in variants
        for _ in range(repeat)
    ]


def row_of(task: Task, args: Mapping[str, Any] | None = None) -> Row:
    """One prompt row for a HUD task, with its own arguments or these."""
    hud_task = {
        "env": task.env,
        "id": task.id,
        "args": dict(task.args if args is None else args),
        "slug": task.slug,
    }
    return {
        "prompt": [{"role": "user", "content": task.slug}],
        "label": task.slug,
        "metadata": {"hud_task": hud_task},
    }


def to_hud_task(row: Mapping[str, Any]) -> Task:
    """HUD's Task of a row; runnable on any runtime that serves the row's env."""
    from hud.eval import Task

    _check_row(row, where="row")
    return Task(**{field: row["metadata"]["hud_task"][field] for field in TASK_FIELDS})


def write_rows(rows: Iterable[Mapping[str, Any]], path: str | Path) -> int:
    """Write rows as JSONL, all or nothing; return how many."""
    target = Path(path)
    lines = []
    for index, row in enumerate(rows):
        _check_row(row, where=f"row {index}")
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise LabError(f"row {index} cannot be written as JSON: {error}") from error
    try:
        write_text(target, "".join(line + "\n" for line in lines))
    except OSError as error:
        raise LabError(f"cannot write {target}: {error.strerror or error}") from error
    return len(lines)


def read_rows(path: str | Path) -> list[Row]:
    """Read and check rows; an error names the line."""
    return list(_iter_rows(Path(path)))


def _iter_rows(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise LabError(f"no file {path}: make one with `cua-lab data mint`") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise LabError(f"{where}: not JSON: {error.msg} at character {error.pos}") from error
        _check_row(row, where=where)
        yield row


def _check_row(row: Any, *, where: str) -> None:
    def need(condition: bool, expected: str) -> None:
        if not condition:
            raise LabError(f"{where}: {expected}")

    need(isinstance(row, Mapping), "expected a JSON object")
    prompt = row.get("prompt")
    one_message = (
        isinstance(prompt, list)
        and len(prompt) == 1
        and isinstance(prompt[0], Mapping)
        and prompt[0].get("role") == "user"
        and isinstance(prompt[0].get("content"), str)
    )
    need(one_message, f"`prompt` must be one user message with the slug; got {prompt!r}")
    need("label" in row, "`label` is missing")
    metadata = row.get("metadata")
    hud_task = metadata.get("hud_task") if isinstance(metadata, Mapping) else None
    need(isinstance(hud_task, Mapping), "`metadata.hud_task` must be an object")
    assert isinstance(hud_task, Mapping)
    for field in TASK_FIELDS:
        need(field in hud_task, f"`metadata.hud_task.{field}` is missing")
        kind: type = dict if field == "args" else str
        value = hud_task[field]
        valid = isinstance(value, kind) and (field == "args" or bool(value))
        what = "an object" if field == "args" else "a non-empty string"
        need(valid, f"`metadata.hud_task.{field}` must be {what}; got {value!r}")


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
