"""What nobody uses is told, and what is excused has a reason that still holds."""

import json
from pathlib import Path

import pytest

vulture = pytest.importorskip("vulture")

from tools.unused import Unused, allowed_names, faults, unused_names  # noqa: E402


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "doors.py").write_text(
        "def front():\n    return 1\ndef back():\n    return front()\n\ndef side():\n    return 2\n"
    )
    return folder


def test_a_function_that_nothing_calls_is_told_with_its_place(package: Path) -> None:
    found = unused_names(package, [])
    assert [(one.kind, one.name, one.line) for one in found] == [
        ("function", "back", 3),
        ("function", "side", 6),
    ]
    line, _ = faults(found, {}, root=package.parent)
    assert line.startswith("house/doors.py:3: function back is used by nobody")


def test_a_lesson_and_a_tool_count_as_users_and_a_magic_line_does_no_harm(
    package: Path, tmp_path: Path
) -> None:
    lessons, tools = tmp_path / "lessons", tmp_path / "tools"
    for folder in (lessons, tools):
        folder.mkdir()
    cells = [
        {"cell_type": "markdown", "source": ["side()"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "back()"]},
    ]
    (lessons / "01_doors.ipynb").write_text(json.dumps({"cells": cells}))
    assert [one.name for one in unused_names(package, [lessons, tools])] == ["side"]
    (tools / "open.py").write_text("side()\n")
    assert unused_names(package, [lessons, tools]) == []


def test_a_file_that_the_package_writes_for_its_users_counts_as_one(package: Path) -> None:
    (package / "new.py.jinja").write_text(
        "class << name >>:\n    size = << 3 | tojson >>\nback()\n"
    )
    assert [one.name for one in unused_names(package, [])] == ["side"]


def test_an_excuse_for_what_is_used_is_a_fault(tmp_path: Path) -> None:
    unused = [Unused("back", "function", tmp_path / "doors.py", 4)]
    assert faults(unused, {"back": "a reason"}, root=tmp_path) == []
    (line,) = faults(unused, {"back": "a reason", "front": "another"}, root=tmp_path)
    assert line == "unused_allowed.toml: front is used, or gone; take it off the list"


def test_an_excuse_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "allowed.toml"
    file.write_text('[[allowed]]\nreason = " "\nnames = ["back"]\n')
    with pytest.raises(SystemExit, match="no reason"):
        allowed_names(file)
