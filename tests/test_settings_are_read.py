"""A recipe's field that nothing reads is a promise that nobody keeps."""

import ast
import dataclasses
from pathlib import Path

import pytest

import cua_lab
from cua_lab.recipes import settings
from cua_lab.recipes import sft_recipe as sft

PACKAGE = Path(cua_lab.__file__).parent


def attributes_read() -> set[str]:
    """Names that some code of the package reads as `something.name`."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def sections() -> list[type]:
    values = [value for module in (settings, sft) for value in vars(module).values()]
    found = {v for v in values if isinstance(v, type) and dataclasses.is_dataclass(v)}
    return sorted(found, key=lambda section: section.__name__)


READ = attributes_read()


@pytest.mark.parametrize("section", sections(), ids=lambda c: c.__name__)
def test_every_field_of_a_recipe_is_read_somewhere(section: type) -> None:
    """`eval.every` and `eval.every_episodes` were accepted and did nothing."""
    assert [f.name for f in dataclasses.fields(section) if f.name not in READ] == []
