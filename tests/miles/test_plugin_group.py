"""The plug-in beside Miles: what it imports, against the packages that are installed for it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
MILES = {"torch", "transformers", "tokenizers", "safetensors"}
"""Miles brings these, pinned."""
LOOK = """
import importlib.metadata as m, json, sys
before = set(sys.modules)
import cua_lab.miles.generate, cua_lab.miles.reward, cua_lab.miles.rollout_log
import cua_lab.cli.miles_command, cua_lab.miles.preflight
owners = m.packages_distributions()
tops = {name.partition('.')[0] for name in set(sys.modules) - before}
print(json.dumps(sorted({owners[top][0].lower() for top in tops if top in owners})))
"""


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads(PROJECT.read_text())


def names(requirements: list[str]) -> dict[str, Requirement]:
    return {Requirement(text).name: Requirement(text) for text in requirements}


def test_the_group_never_moves_what_miles_pins(project: dict) -> None:
    plugin = names(project["dependency-groups"]["plugin"])
    assert MILES.isdisjoint(plugin)
    ours = names(project["project"]["dependencies"])
    assert {name: str(ours[name].specifier) for name in plugin} == {
        name: str(requirement.specifier) for name, requirement in plugin.items()
    }


def test_the_plug_in_imports_nothing_that_is_not_installed_for_it(project: dict) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    declared = {name.lower() for name in names(project["project"]["dependencies"])}
    plugin = {name.lower() for name in names(project["dependency-groups"]["plugin"])}
    assert "hud" in imported, "else the look was at nothing"
    assert (imported & declared) - plugin - MILES == set()
