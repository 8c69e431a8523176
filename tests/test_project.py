"""The project's own files agree with each other."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def test_environment_yml_installs_this_package_with_its_tests_and_holds_no_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert pip == "pip"
    assert packages == {"pip": ["-e .[test]"]}
    minor = python.removeprefix("python=")
    assert f">={minor}" in PYPROJECT["project"]["requires-python"]
    assert PYPROJECT["tool"]["mypy"]["python_version"] == minor


def test_every_dependency_has_a_pinned_version() -> None:
    pins = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["test"], *extras["browser"],
              *extras["sft"], *extras["docs"]]  # fmt: skip
    names = {re.split(r"[<>=\[ ;]", r)[0].lower().replace("_", "-") for r in wanted}
    assert names <= pins
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_the_readme_shows_the_two_commands_first() -> None:
    readme = (ROOT / "README.md").read_text()
    first_block = readme.split("```")[1]
    assert "make run" in first_block
    assert "make test" in first_block


def test_no_committed_text_names_a_registry_host_or_a_home_folder() -> None:
    forbidden = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|/root/|/work/main")
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in {".png", ".tiktoken"}:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not forbidden.search(text), f"{path.relative_to(ROOT)} names a host or a home folder"
