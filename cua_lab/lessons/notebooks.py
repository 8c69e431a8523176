"""Store and check the outputs of the lessons.

    python -m cua_lab.lessons.notebooks store|check [NAME ...]

Invariant: storing twice gives the same bytes. Everything that could differ between two honest runs
is taken out in one place: timing metadata and widget state are never recorded, widget views are
dropped (a reopened notebook would show "model not found"; ipywidgets#3823), and the sanitise rules
that nbval applies when it compares are applied to what is stored.

Lessons that read a finished run read the package's own here (`cua_lab.lessons.finished_run`), so
that a run of this machine changes nothing; store them again when another run was packed.
"""

from __future__ import annotations

import argparse
import configparser
import difflib
import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cua_lab.doctor import real_browser
from cua_lab.errors import LabError
from cua_lab.files import write_text
from cua_lab.lessons.finished_run import ONLY_PACKED

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
SANITIZE = NOTEBOOKS / "sanitize.cfg"
CELL_TIMEOUT_S = 600
REAL_BROWSER = ("07_safety", "08_real_browser")
"""Lessons that need Chromium and an X server, 08 MiniWoB++ too; elsewhere they are not checked."""
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TQDM_DISABLE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "COLUMNS": "100",
    ONLY_PACKED: "packed",
}
"""What outputs are stored and checked under; `tests/conftest.py` sets the same."""


def set_environment() -> None:
    """Give this process, and the kernels it starts, the environment of the stored outputs."""
    os.environ.update(ENVIRONMENT)
    for stray in ("HUD_API_KEY", "HUD_TELEMETRY_ENABLED"):
        os.environ.pop(stray, None)


def sanitise_rules(path: Path = SANITIZE) -> list[tuple[re.Pattern[str], str]]:
    """The rules of nbval's sanitise file, in its order."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path, encoding="utf-8")
    return [
        (re.compile(parser[name]["regex"]), parser[name]["replace"]) for name in parser.sections()
    ]


def sanitise(value: Any, rules: list[tuple[re.Pattern[str], str]]) -> Any:
    """Apply the rules to every string in an output."""
    if isinstance(value, str):
        for pattern, replacement in rules:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, list):
        return [sanitise(item, rules) for item in value]
    if isinstance(value, dict):
        return {key: sanitise(item, rules) for key, item in value.items()}
    return value


def normalise(notebook: Any, rules: list[tuple[re.Pattern[str], str]]) -> Any:
    """Drop what a later run need not repeat: widget views and state, timing, kernel details."""
    notebook.metadata = {"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE_INFO)}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
            output.get("metadata", {}).pop(WIDGET_VIEW, None)
            for field in ("text", "traceback"):
                if field in output:
                    output[field] = sanitise(output[field], rules)
            for mime, content in output.get("data", {}).items():
                if mime.startswith("text/"):
                    output["data"][mime] = sanitise(content, rules)
    return notebook


def execute(path: Path) -> Any:
    """Run a notebook from a fresh kernel in its own folder and return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    set_environment()
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    begun: list[int] = []
    client.on_cell_execute = lambda cell, cell_index: begun.append(cell_index)
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        number = begun[-1] if begun else 0
        what = " ".join(str(error).split())
        if isinstance(error, CellExecutionError):
            what = f"{error.ename}: {error.evalue}"
        raise LabError(
            f"{path.name}, {cell_name(number, notebook.cells[number])} failed: {what}"
        ) from error
    return normalise(notebook, sanitise_rules())


def comparable(notebook: Any) -> list[str]:
    """What `check` compares: sources and outputs, less pictures."""
    return [line for cell in notebook.cells for line in _comparable_cell(cell)]


def _comparable_cell(cell: Any) -> list[str]:
    lines = [f"# {cell.cell_type} {cell.id}\n", *cell.source.splitlines(keepends=True)]
    if cell.cell_type == "code":
        outputs = json.loads(json.dumps(cell.outputs))
        for output in outputs:
            for mime in ("image/png", "image/jpeg"):
                if mime in output.get("data", {}):
                    output["data"][mime] = "(picture)"
                output.get("metadata", {}).pop(mime, None)  # its size and description
        text = json.dumps(outputs, indent=1, sort_keys=True)
        lines += ["\n", *text.splitlines(keepends=True), "\n"]
    return lines


def differences(name: str, stored: Any, fresh: Any) -> Iterator[str]:
    """Each cell whose outputs are others than those stored, by number and id, and how."""
    pairs = zip_longest(stored.cells, fresh.cells)
    for number, (before, after) in enumerate(pairs):
        old = [] if before is None else _comparable_cell(before)
        new = [] if after is None else _comparable_cell(after)
        if old != new:
            cell = f"{name}, {cell_name(number, before if after is None else after)}"
            yield f"{cell} gives something else than it has stored:\n"
            yield from difflib.unified_diff(old, new, f"{cell} (stored)", f"{cell} (fresh)")


def cell_name(number: int, cell: Any) -> str:
    """How a cell is called: its number in the notebook, from 0, its id and its first line."""
    first = next(iter(cell.source.splitlines()), "")
    return f"cell {number} ({cell.id}, {first[:60]!r})"


def store(path: Path) -> None:
    """Execute a lesson and write it back with its outputs."""
    import nbformat

    notebook = execute(path)
    text = nbformat.writes(notebook) + "\n"  # type: ignore[no-untyped-call]
    write_text(path, text)
    print(f"stored {path.name}: {len(text) / 1e6:.2f} MB")


def check(path: Path) -> bool:
    """Execute a lesson afresh and say whether its stored outputs are what came out."""
    import nbformat

    stored = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    try:
        fresh = execute(path)
    except LabError as error:
        print(error)
        return False
    found = list(differences(path.name, stored, fresh))
    sys.stdout.writelines(found or [f"{path.name}: its stored outputs are what a run gives\n"])
    return not found


def missing_for(path: Path) -> str:
    """What a lesson needs and this machine lacks, with the fix; empty where it can run."""
    if path.stem not in REAL_BROWSER:
        return ""
    lacking = [check for check in real_browser() if check.status != "ok"]
    return "; ".join(f"{check.name} is absent: {check.fix}" for check in lacking)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cua_lab.lessons.notebooks", description=__doc__
    )
    parser.add_argument("action", choices=["store", "check"])
    parser.add_argument("names", nargs="*", help="such as 04_stitching; all lessons if none given")
    arguments = parser.parse_args()
    paths = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    if arguments.names:
        known = {path.stem: path for path in paths}
        unknown = [name for name in arguments.names if Path(name).stem not in known]
        if unknown:
            parser.error(f"no lesson named {', '.join(unknown)}; there are {', '.join(known)}")
        paths = [known[Path(name).stem] for name in arguments.names]
    for path in paths:
        if missing := missing_for(path):
            print(f"{path.name} is left out: {missing}")
    paths = [path for path in paths if not missing_for(path)]
    if arguments.action == "store":
        for path in paths:
            store(path)
        return 0
    drifted = [path.stem for path in paths if not check(path)]
    return 1 if drifted else 0


if __name__ == "__main__":
    sys.exit(main())
