"""The loops are short, say where the real thing stands, and point at what exists."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from cua_lab.lessons import loops

FILES = sorted(Path(loops.__file__).parent.glob("*.py"))
LOOPS = [path for path in FILES if path.name != "__init__.py"]
NAMES = [path.stem for path in LOOPS]


@pytest.mark.parametrize("path", LOOPS, ids=NAMES)
def test_a_loop_reads_in_one_sitting(path: Path) -> None:
    limit = 60 if path.stem.startswith("plus_") else 120
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", LOOPS, ids=NAMES)
def test_a_loop_names_the_real_one(path: Path) -> None:
    assert "The real one" in path.read_text().split('"""')[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_whatever_a_docstring_points_at_exists(path: Path) -> None:
    text = path.read_text().split('"""')[1]
    for name in re.findall(r"`(cua_lab[\w.]*)`", text):
        assert _exists(name), f"{path.name} names {name}"


def _exists(name: str) -> bool:
    """A module, or a name in one."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # its parent is no folder
        pass
    module, _, attribute = name.rpartition(".")
    return hasattr(importlib.import_module(module), attribute)
