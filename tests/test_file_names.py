"""A search finds the file one meant, and a file's head tells what it needs."""

import ast
from collections import Counter
from pathlib import Path

import cua_lab
from tools.floors import imports_of

PACKAGE = Path(cua_lab.__file__).parent
SHARED = {"__init__.py", "__main__.py", "env.py", "tasks.py"}
"""Names that a convention gives: Python's, and HUD's for a folder with an environment."""
TO_READ = PACKAGE / "lessons" / "loops"
"""A loop is named after the module that it explains."""
LATE = {
    "cli": "a command loads what it needs, so that --help needs neither torch nor HUD",
    "viz/__init__.py": "anywidget is loaded where the viewer is shown, and nowhere else",
    "training/learner.py": "peft, which adapters need, is an extra",
    "bench/gpu_check.py": "the job brings HUD along, and only the contract plays episodes",
}
"""Files and rooms with imports of our own modules inside functions, and why."""


def test_file_names_occur_once() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.parent != TO_READ]
    counts = Counter(path.name for path in files if path.name not in SHARED)
    assert [name for name, count in counts.items() if count > 1] == []


def test_imports_inside_functions_have_a_stated_reason() -> None:
    late = {
        one.path.relative_to(PACKAGE).as_posix()
        for one in imports_of(PACKAGE)
        if one.line in _lines_of_functions(one.path)
    }
    reasons = {
        name: next((r for r in LATE if name == r or name.startswith(f"{r}/")), None)
        for name in late
    }
    assert [name for name, reason in reasons.items() if reason is None] == []
    assert set(reasons.values()) == set(LATE)  # a reason that nothing needs any more goes


def _lines_of_functions(path: Path) -> set[int]:
    return {
        line
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
        for line in range(node.lineno, node.end_lineno + 1)
    }
