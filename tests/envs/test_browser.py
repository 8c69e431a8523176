"""2048 and the to-do list on Chromium: the lab's ids and grades, on pages that are really drawn."""

import asyncio
import inspect
from io import BytesIO

import pytest
from hud.eval import LocalRuntime, SubprocessRuntime, Task
from PIL import Image

from cua_lab.computer.settling import QuietFramebuffer
from cua_lab.demonstrators import browser as browser_players
from cua_lab.demonstrators import lab as lab_players
from cua_lab.demonstrators import recorder
from cua_lab.demonstrators.demos import DemoRequest, PromptContext
from cua_lab.demonstrators.expert_play import expert_config
from cua_lab.desktop.apps import Todo
from cua_lab.desktop.apps.transcripts import board_transcript
from cua_lab.envs.browser import env as browser
from cua_lab.envs.browser.env import PAGES, BrowserEnvironment
from cua_lab.envs.browser_screen import BrowserScreen
from cua_lab.envs.lab.env import env as lab
from cua_lab.play.episode import play
from cua_lab.play.scripted import ScriptedTransport
from tests.conftest import needs_chromium

pytestmark = pytest.mark.browser


def episode(runtime, template, calls, **args):
    """Play these calls, one a turn, and look late: a crowded browser may paint after the usual
    wait, and these tests compare pixels."""
    left = iter(calls)
    config = expert_config(settle=QuietFramebuffer(quiet_ms=250, react_ms=250, at_most_ms=5000))
    task = Task(env="browser", id=template, args={"turns": len(calls), **args}, slug=template)

    async def main():
        return await play(
            task,
            config,
            ScriptedTransport(lambda messages: next(left)),
            runtime=runtime,
            id="e",
            group="g",
        )

    return asyncio.run(main())


@pytest.fixture
def here(desktops):
    """A runtime on a desktop of the session's pool."""
    from cua_lab.desktop import background

    desktop = background.wait(desktops.borrow())
    yield LocalRuntime(
        lambda task: BrowserEnvironment(
            BrowserScreen(desktop.size, scale=desktop.scale, lent=desktop)
        )
    )
    background.wait(desktops.give_back(desktop))


def test_the_templates_are_the_labs_with_its_arguments() -> None:
    for id, template in browser.env.templates.items():
        ours, theirs = template.sig.parameters, lab.templates[id].sig.parameters
        assert [name for name in ours if name != "keep_page"] == list(theirs)
        for name in set(ours) - {"width", "height", "keep_page"}:
            assert ours[name].default == theirs[name].default
    assert set(lab.templates) - set(browser.env.templates) == {"targets-click", "errands-open"}


def test_the_same_keys_lead_to_the_same_board(here) -> None:
    keys = {"action": "press", "keys": ["left", "down", "right", "up"] * 5}
    runs = [episode(here, "2048-score", [keys], seed=5) for _ in range(2)]
    boards = [run.info["state"]["board"] for run in runs]
    assert boards[0] == boards[1]
    assert runs[0].info["state"]["moves"] > 10
    assert runs[0].reward == runs[0].info["state"]["score"] / 1000
    assert runs[0].screenshots == runs[1].screenshots


def test_a_game_on_a_page_that_was_kept_starts_with_the_same_pixels(here) -> None:
    keys = {"action": "press", "keys": ["left", "down", "right", "up"] * 3}
    fresh, _, kept = [
        episode(here, "2048-score", [keys], seed=seed, keep_page=keep)
        for seed, keep in ((5, False), (6, True), (5, True))
    ]
    assert kept.info["state"] == fresh.info["state"]
    assert kept.screenshots == fresh.screenshots


def test_demonstrations_are_the_labs_games_on_the_pages_screens(monkeypatch) -> None:
    needs_chromium()
    monkeypatch.setattr(recorder, "AT_ONCE", 2)
    monkeypatch.setattr(recorder, "BLOCK", 2)
    args = {"width": 128, "height": 128, "target": 1000, "keep_page": True}
    players = [
        room.demonstrator(
            DemoRequest(
                "2048-score",
                PromptContext(None, ()),
                args,
                options={},
                space="0-1000",
                max_keys=20,
                turns=2,
                seed=0,
            )
        )
        for room in (browser_players, lab_players)
    ]
    for index in range(2):
        page, app = (player(index) for player in players)
        assert page.messages == app.messages
        assert [image.size for image in page.images] == [(128, 128)] * 2
        assert page.images[0] != app.images[0]


def test_a_move_packs_every_tile_once_like_the_embedded_game(desktops) -> None:
    """The page has rules of its own; they are held to the embedded game's, board by board."""
    import random

    from cua_lab.desktop.apps import rules2048
    from cua_lab.desktop.page_server import PageServer

    rng = random.Random(0)
    boards = [
        [[rng.choice((0, 2, 2, 4, 8)) for _ in range(4)] for _ in range(4)] for _ in range(40)
    ]

    async def ask():
        with PageServer({"pages": PAGES}) as server:
            async with desktops.lend() as desktop:
                await desktop.show(server.url("pages/2048.html"))
                return await desktop.evaluate(
                    f"{boards}.map(b => {{ lab.start({{board: b, seed: 0}});"
                    " return [0, 1, 2, 3].map(d => moved(d)).map(m => [m.next, m.gained]); })"
                )

    for board, answers in zip(boards, asyncio.run(ask()), strict=True):
        for direction, answer in zip(("left", "up", "right", "down"), answers, strict=True):
            ours, gained = rules2048.move(tuple(map(tuple, board)), direction)
            assert [list(row) for row in ours] == answer[0]
            assert gained == answer[1]


def test_a_near_win_is_won_by_the_keys_that_merge_and_by_no_others(here) -> None:
    """The page's spawns are its own: a near win is one whatever spawns."""
    from cua_lab.desktop.apps import boards2048

    board = boards2048.near_win(64, 2, 3)
    right = boards2048.winning_keys(board, 64, 2)
    wrong = [(a, b) for a in boards2048.DIRECTIONS for b in ("left", "up") if (a, b) not in right]
    for keys, won in ((right[0], 1.0), (wrong[0], 0.0), ((*right[0], "left"), 0.0)):
        run = episode(here, "2048-near-win", [{"action": "press", "keys": list(keys)}], seed=3)
        assert run.reward == won
        assert run.info["readings"][0] == board_transcript(board)
        assert len(run.info["readings"]) == len(keys) + 1


def test_a_merge_is_worth_its_part_of_the_best_one(here) -> None:
    from cua_lab.desktop.apps import boards2048, rules2048

    board = boards2048.mid_game(3)
    best = boards2048.best_gain(board)
    for key in ("left", "up"):
        gained = rules2048.move(board, key)[1]
        run = episode(here, "2048-best-merge", [{"action": "press", "keys": [key]}], seed=3)
        assert run.reward == pytest.approx(gained / best)
        assert run.success == (gained == best)
        assert run.info["readings"][0] == board_transcript(board)
    spent = episode(here, "2048-best-merge", [{"action": "press", "keys": ["left"] * 2}], seed=3)
    assert spent.reward == 0.0


def test_an_item_is_added_by_typing_it(here) -> None:
    args = {"seed": 2, "text": "Résumé, 日本"}
    done = episode(here, "todo-create", [{"action": "type", "text": "Résumé, 日本\n"}], **args)
    assert (done.reward, done.success) == (1.0, True)
    near = episode(here, "todo-create", [{"action": "type", "text": "resume\n"}], **args)
    assert (near.reward, near.success) == (0.0, False)


def test_the_named_items_are_checked_by_keyboard_and_nothing_else_counts(here) -> None:
    before = [item["text"] for item in Todo(count=3, seed=4).state()["items"]]
    task = browser.env.templates["todo-complete"](seed=4)
    assert task.args["seed"] == 4
    rewards = []
    for index in range(len(before)):
        keys = ["tab", *["tab"] * (1 + 2 * index), "space"]
        rewards.append(
            episode(here, "todo-complete", [{"action": "press", "keys": keys}], seed=4).reward
        )
    assert sorted(rewards) == [0.0, 0.0, 1.0]


def test_a_served_env_boots_the_screen_that_the_row_asks_for() -> None:
    """A child process knows its rows only when they come: the browser boots anew on its port."""
    needs_chromium()
    runtime = SubprocessRuntime(inspect.getfile(browser), ready_timeout=180)
    keys = {"action": "press", "keys": ["left", "down", "right", "up"] * 5}
    run = episode(runtime, "2048-score", [keys], seed=5, width=200, height=180)
    assert run.status == "completed", run.error
    assert run.info["state"]["moves"] > 10
    assert Image.open(BytesIO(run.screenshots[-1])).size == (200, 180)
