"""Env packages: one resolver for short names, dotted names, folders and files."""

from pathlib import Path

import pytest

from cua_lab.env_package import dockerfile_of, env_package, package_folder
from cua_lab.errors import LabError

BARE = """
from hud.environment import Environment

screen = Environment("bare")


@screen.template(id="look")
async def look(seed: int = 0):
    yield {"prompt": "Look."}
    yield {"score": 1.0}
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A package with only what HUD asks for."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "env.py").write_text(BARE)
    return folder


def test_the_labs_own_packages_say_everything_about_themselves() -> None:
    lab, browser = env_package("lab"), env_package("browser")
    assert lab.name == "lab"
    assert lab.build is not None
    assert lab.most_at_once is None
    assert lab.players == "cua_lab.demonstrators.lab"
    assert "targets-click" in lab.templates
    assert browser.most_at_once
    assert browser.tool
    assert dockerfile_of("browser").is_file()


def test_a_package_with_only_an_env_file_resolves_too(bare: Path) -> None:
    """The public hud-browser env has no NAME, no `build`, no players."""
    for source in (bare, bare / "env.py"):
        package = env_package(source)
        assert (package.name, package.build, package.players) == ("bare", None, None)
        assert list(package.templates) == ["look"]
        assert [(task.slug, task.id) for task in package.tasks] == [("look", "look")]
        assert package.env_file == bare / "env.py"
        assert package_folder(source) == bare


def test_what_is_missing_is_said_where_it_is_asked_for(bare: Path) -> None:
    (bare / "env.py").write_text(BARE.replace("seed: int = 0", "seed: int"))
    package = env_package(bare)
    with pytest.raises(LabError, match=r"nothing to mint.*look"):
        package.public_tasks()
    with pytest.raises(LabError, match=r"no Dockerfile\.hud"):
        dockerfile_of(bare)
    package.check_concurrency(10_000, "run.concurrency")


def test_two_envs_in_one_file_are_refused(bare: Path) -> None:
    (bare / "env.py").write_text(BARE + '\nother = Environment("other")\n')
    with pytest.raises(LabError, match="holds 2 HUD environments"):
        env_package(bare)


@pytest.mark.parametrize(
    "source", ["no.such.package", "cua_lab.policy", "./nowhere", "nope.py", ""]
)
def test_what_is_no_package_is_one_error(source: str) -> None:
    with pytest.raises(LabError, match="no HUD env package"):
        env_package(source)


def test_more_episodes_than_a_process_can_play_are_refused() -> None:
    with pytest.raises(LabError, match=r"at most \d+ episodes at a time.*run.concurrency 99"):
        env_package("browser").check_concurrency(99, "run.concurrency")


V5_ENV = """
from hud import Environment

env = Environment("old")


@env.tool()
async def act() -> str:
    return "x"


@env.scenario("play")
async def play(target: int = 3):
    yield "Play."
    yield 1.0
"""
V5_SERVER = "from hud.server import MCPServer\nmcp = MCPServer(name='old')\n"


@pytest.mark.parametrize(("source", "seen"), [(V5_ENV, "'tool'"), (V5_SERVER, "'hud.server'")])
def test_a_package_of_hud_v5_is_named_as_one(tmp_path: Path, source: str, seen: str) -> None:
    (tmp_path / "env.py").write_text(source)
    (tmp_path / "tasks.py").write_text("from env import env\ntasks = {'a': env('play')}\n")
    with pytest.raises(LabError, match=f"{seen}.*HUD v5.*@env.template"):
        env_package(tmp_path)
