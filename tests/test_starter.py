"""`cua-lab new`: what it writes is whole, plays at once and passes its own test."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from cua_lab.demonstrators import players_of
from cua_lab.demonstrators.demos import DemoRequest, PromptContext
from cua_lab.demonstrators.own_players import _said, app_players
from cua_lab.demonstrators.trial_play import try_out
from cua_lab.desktop.apps import Game2048
from cua_lab.env_package import env_package
from cua_lab.errors import LabError
from cua_lab.recipes import load_recipe
from cua_lab.run.stage_context import build_stage, demonstrator_of
from cua_lab.starter import Button, first_button, new_package
from tests.conftest import needs_chromium

PAGE = '<!doctype html><body><h1>Shop</h1><button id="buy">Buy &amp; <b>go</b></button></body>'


@pytest.fixture(scope="module")
def lamps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: Python takes a package of one name from one place."""
    folder = tmp_path_factory.mktemp("new") / "starter_lamps"
    new_package(folder)
    return folder


def test_a_new_package_has_all_its_parts_and_fits_on_two_screens(lamps: Path) -> None:
    assert sorted(path.name for path in lamps.iterdir()) == [
        *("__init__.py", "app.py", "env.py", "players.py", "starter_lamps.yaml", "tasks.py"),
        "test_starter_lamps.py",
    ]
    package = env_package(lamps)
    assert (package.name, list(package.templates)) == ("starter_lamps", ["put-out"])
    assert [task.slug for task in package.public_tasks()] == [f"put-out-{i}" for i in range(4)]
    code = [lamps / "app.py", lamps / "env.py", lamps / "players.py"]
    assert sum(len(path.read_text().splitlines()) for path in code) < 120


def test_it_plays_at_once_and_its_player_beats_chance(lamps: Path) -> None:
    shown, at_random = asyncio.run(try_out(env_package(lamps), episodes=12))
    rewards = [[e.reward for e in episodes] for episodes in (shown, at_random)]
    assert None not in rewards[0] + rewards[1]
    assert sum(rewards[0]) >= 6 > sum(rewards[1])


def test_its_own_test_passes(lamps: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", lamps.name],
        cwd=lamps.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_recipe_builds_a_stage_with_its_demonstrator(lamps: Path) -> None:
    recipe = load_recipe(lamps / "starter_lamps.yaml", [f"tasks.package={lamps}"])
    demo = demonstrator_of(build_stage(recipe, recipe.stages[0]))(3)
    assert [message["role"] for message in demo.messages] == ["system", "user", "assistant"]
    assert demo.images[0].size == (96, 96)


def asked(
    template: str, options: dict | None = None, *, side: int, turns: int = 1, seed: int = 0
) -> DemoRequest:
    """Demonstrations on a square screen."""
    sides = {"width": side, "height": side}
    return DemoRequest(
        template,
        PromptContext(None, ()),
        sides,
        options or {},
        space="0-1000",
        max_keys=20,
        turns=turns,
        seed=seed,
    )


def test_a_demonstration_is_a_function_of_its_number(lamps: Path) -> None:
    make = players_of(env_package(lamps)).demonstrator
    player, again = (make(asked("put-out", side=96, seed=5)) for _ in range(2))
    for index in (7, 2, 7):
        assert player(index).messages == again(index).messages
    assert player(1).messages != player(2).messages


def test_an_unknown_option_of_the_player_is_named(lamps: Path) -> None:
    make = players_of(env_package(lamps)).demonstrator
    with pytest.raises(LabError, match="takes noise; got nose"):
        make(asked("put-out", {"nose": 1}, side=96))


def test_a_player_of_several_turns_drives_the_app() -> None:
    """Keys change the board, and the next call is made of the new state."""
    seen = []

    def show(state, rng: Random):
        seen.append(state["board"])
        return {"action": "press", "keys": ["left"]} if len(seen) < 3 else None

    class Game(Game2048):
        instruction = "Play."

    make = app_players(Game, show, keyboard=True).demonstrator
    demo = make(asked("2048", side=128, turns=4))(0)
    assert len(seen) == 3
    assert seen[0] != seen[1]
    assert len(demo.images) == 2, "the screen before each of the two calls"


def test_a_click_beside_the_screen_is_shown_on_its_edge() -> None:
    from cua_lab.computer.coordinates import View

    view = View((96, 96), space="0-1000")
    assert _said({"action": "click", "x": -4.2, "y": 200.0}, view) == {
        "action": "click", "x": 0, "y": 1000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"),
    [("My-Env", "my_env"), ("2x", "my_2x"), ("json", "already"), ("a" * 41, "at most 40")],
)
def test_a_name_that_is_no_package_name_is_refused(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(LabError, match=hint):
        new_package(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(lamps: Path) -> None:
    with pytest.raises(LabError, match="exists already"):
        new_package(lamps)


def test_the_first_button_with_an_id_is_the_task() -> None:
    assert first_button(PAGE) == Button("buy", "Buy & go")
    assert first_button('<button>no id</button><a id="x" href="y">more</a>') == Button("x", "more")
    assert first_button('<input id=ok type=submit value="Send it">') == Button("ok", "Send it")
    assert first_button("<p id=a>text</p>") is None


def test_a_page_is_copied_with_hooks_unless_it_has_its_own(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text(PAGE)
    assert "lab.js" in new_package(tmp_path / "starter_shop", page)
    copied = (tmp_path / "starter_shop" / "index.html").read_text()
    assert copied.index('<script src="lab.js">') < copied.index("</body>")
    page.write_text(PAGE + "<script>const lab = {start() {}}; lab.state = () => ({});</script>")
    assert "lab.js" not in new_package(tmp_path / "starter_shop2", page)


def test_a_page_without_anything_to_click_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text("<p>text</p>")
    with pytest.raises(LabError, match="lesson 12_your_own"):
        new_package(tmp_path / "starter_text", page)
    with pytest.raises(LabError, match="cannot be read"):
        new_package(tmp_path / "starter_text", tmp_path / "absent.html")
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


@pytest.mark.browser
def test_a_page_plays_at_once_in_chromium(tmp_path: Path) -> None:
    """A hostile text in the page stays a text: in Python, in JavaScript and in the prompt."""
    needs_chromium()
    page = tmp_path / "p.html"
    page.write_text('<body><button id="a\'b">"); import os #</button></body>')
    new_package(tmp_path / "starter_page", page)
    shown, at_random = asyncio.run(try_out(env_package(tmp_path / "starter_page"), episodes=4))
    assert [e.error for e in shown + at_random if e.status == "failed"] == []
    assert all(e.info["state"]["clicks"] == 1 for e in shown)
    assert len({e.screenshots[0] for e in shown}) == 4, "each start is another place"
    assert sum(e.reward for e in shown) >= 1
