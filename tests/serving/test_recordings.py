"""Lessons read recordings that come with the package, so that a copied notebook runs anywhere."""

import tomllib
from pathlib import Path

import pytest

from cua_lab.lessons.notebooks import NOTEBOOKS
from cua_lab.serving import recordings
from cua_lab.serving.recordings import SGLANG, VLLM, recorded

FOLDER = Path(recordings.__file__).parent


@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_a_recording_is_found_from_any_folder(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exchange = recorded(engine, "b6_forced_hermes_tool_call")
    assert exchange["response"]["choices"][0]["message"]["tool_calls"]


def test_recordings_are_part_of_an_installed_package():
    project = tomllib.loads(Path(NOTEBOOKS.parent, "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["cua_lab"]
    package = FOLDER.parents[1]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert set(FOLDER.glob("*/*.json")) <= packed
    assert set(Path(package, "viz", "static").iterdir()) <= packed


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_lesson_reads_the_tests_folder(path):
    assert "../tests" not in path.read_text(encoding="utf-8")
