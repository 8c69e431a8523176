"""What a visitor reads first is short, complete and points at what exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from cua_lab import __version__

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_readme_is_read_in_a_few_minutes_and_names_every_lesson_and_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("notebooks/*.ipynb")]
    for page in pages:
        assert f"({page.relative_to(ROOT).as_posix()})" in readme, f"the README lacks {page.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_minutes_of_a_lesson_are_those_that_it_states() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| \d\d \| \[.*?\]\((.*?)\) \| (\d+) \|", readme, re.MULTILINE)
    assert len(rows) == len(list(ROOT.glob("notebooks/*.ipynb")))
    for name, minutes in rows:
        assert f"{minutes} minutes" in (ROOT / name).read_text(), name


def test_every_room_of_the_floors_is_explained() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for floor in PROJECT["tool"]["cua_lab"]["floors"]:
        for room in floor:
            assert f"`{room}`" in text or f"`{room}.py`" in text, f"CONTRIBUTING.md lacks {room}"


def test_the_glossary_has_about_forty_words_and_each_once() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Glossary")[1].split("\n## ")[0]
    words = re.findall(r"^\| (?!word|---)(.+?) \|", section, re.MULTILINE)
    assert 35 <= len(words) <= 50
    assert len({word.lower() for word in words}) == len(words)


def test_the_changelog_and_the_citation_are_of_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(__version__)
    assert any(heading.startswith(__version__) for heading in headings)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == __version__
    assert citation["license"] == PROJECT["project"]["license"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_and_templates_are_yaml_and_call_targets_that_exist(file: Path) -> None:
    text = file.read_text()
    assert yaml.safe_load(text)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"run: make ([a-z-]+)", text)) <= targets


def test_the_tests_run_on_every_supported_python_on_linux_and_macos() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.13"
    assert matrix["python"] == ["3.11", "3.12"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


def test_pre_commit_runs_the_ruff_that_lint_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert hooks[0]["rev"] == f"v{pinned.group(1)}"
