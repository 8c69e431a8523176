"""Functions stay short enough to be read at once: docs/STYLE.md says how short."""

import ast
from pathlib import Path
from statistics import median

import cua_lab

LONGEST, MEDIAN = 60, 8
PACKAGE = Path(cua_lab.__file__).parent


def lengths() -> dict[str, int]:
    """Lines of every function of the package, signature and docstring included."""
    return {
        f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {node.name}": node.end_lineno
        - node.lineno
        + 1
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }


def test_no_function_is_longer_than_a_screen() -> None:
    assert {name: lines for name, lines in lengths().items() if lines > LONGEST} == {}


def test_half_of_the_functions_have_a_few_lines() -> None:
    assert median(lengths().values()) <= MEDIAN
