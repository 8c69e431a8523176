"""MiniWoB++ on Chromium: its own tasks, its own rewards, experts that act over VNC alone."""

import asyncio

import psutil
import pytest

from cua_lab.demonstrators import recorder
from cua_lab.demonstrators.demos import PromptContext
from cua_lab.demonstrators.expert_play import expert_config, play_expert
from cua_lab.demonstrators.experts import EXPERTS, UNSOLVED
from cua_lab.demonstrators.miniwob import demonstrator
from cua_lab.desktop.pool import DesktopPool
from cua_lab.envs.miniwob import page_urls as pages
from cua_lab.envs.miniwob.env import env, screen_of
from cua_lab.envs.miniwob.tasks import HELD_OUT, TRAINING, held_out, tasks
from cua_lab.errors import LabError
from tests.conftest import needs_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def small():
    """Two desktops at two pixels per CSS pixel."""
    needs_chromium()
    pytest.importorskip("miniwob", reason="MiniWoB++ is not installed: pip install -e '.[browser]'")
    from cua_lab.desktop import background

    pool = background.wait(DesktopPool(2, 320, 420, scale=2.0).start())
    yield pool
    background.wait(pool.close())


def play_all(pool, rows, config=None):
    """Experts play rows of (page, seed), on all desktops of the pool; in the order of the rows."""
    waiting = list(enumerate(rows))[::-1]
    episodes = {}

    async def work():
        while waiting:
            index, (page, seed) = waiting.pop()
            async with pool.lend() as desktop:
                episodes[index] = await play_expert(
                    desktop, page, seed, config=config or expert_config()
                )

    async def main():
        async with asyncio.timeout(600):
            await asyncio.gather(*(work() for _ in range(pool.count)))

    asyncio.run(main())
    return [episodes[i] for i in range(len(rows))]


@pytest.mark.parametrize("chosen", ["curated", pytest.param("all", marks=pytest.mark.nightly)])
def test_every_expert_solves_its_page(small, chosen) -> None:
    """Coordinates come from the page, actions go over VNC: what a policy can do, too."""
    curated = (*TRAINING, *HELD_OUT)
    rows = [(page, 1) for page in (curated if chosen == "curated" else EXPERTS)]
    failed = {
        page: episode.error or episode.reward
        for (page, _), episode in zip(rows, play_all(small, rows), strict=True)
        if not episode.success
    }
    assert failed == {}
    assert len(curated) >= 30


def test_a_negative_number_is_typed_with_its_sign(small) -> None:
    """Starts 0 and 7 of form-sequence-2 ask for one; found by 520 episodes under a gate."""
    assert [e.success for e in play_all(small, [("form-sequence-2", n) for n in (0, 7)])] == [1, 1]


def test_a_task_is_fixed_by_page_and_seed_and_starts_from_the_same_pixels(small) -> None:
    rows = [("click-button", 3), ("click-button", 3), ("click-button", 4)]
    first, again, other = (e.screenshots[0] for e in play_all(small, rows))
    assert first == again
    assert first != other


def test_what_the_page_punishes_and_what_is_left_undone_is_minus_one(small) -> None:
    async def scenario():
        async with small.lend() as desktop:
            await desktop.show(pages.url("click-test-2"))
            await pages.begin(desktop, 0)
            undone = await pages.outcome(desktop)
            await desktop.evaluate("document.querySelector('#subbtn2').click()")
            return undone, await pages.outcome(desktop)

    undone, wrong = asyncio.run(scenario())
    assert (undone["done"], wrong["done"], wrong["reward"]) == (False, True, -1)


def test_a_finished_episode_cannot_be_played_again(small) -> None:
    """The benchmark covers the page with START, and a second episode would hide the first's
    reward."""

    async def scenario():
        async with small.lend() as desktop:
            await desktop.show(pages.url("click-test"))
            await pages.begin(desktop, 0)
            await desktop.evaluate("document.querySelector('#subbtn').click()")
            cover = "getComputedStyle(document.querySelector('#sync-task-cover')).display"
            return await desktop.evaluate(cover), await pages.outcome(desktop)

    cover, found = asyncio.run(scenario())
    assert cover == "none"
    assert found["reward"] > 0


def test_unicode_tasks_arrive_as_they_were_written(small) -> None:
    """The pages do not name their encoding, and a browser left alone guesses Latin-1."""

    async def scenario():
        async with small.lend() as desktop:
            await desktop.show(pages.url("unicode-test"))
            return [await pages.begin(desktop, seed) for seed in range(3)]

    assert not any("Ã" in said or "â" in said for said in asyncio.run(scenario()))


def test_an_expert_speaks_the_policys_space_and_sees_its_screens(small) -> None:
    config = expert_config("0-1000", screenshot_width=160)
    (episode,) = play_all(small, [("click-option", 2)], config)
    assert episode.success
    points = [a.arguments for a in episode.actions if a.arguments and "x" in a.arguments]
    assert all(0 <= p["x"] <= 1000 and 0 <= p["y"] <= 1000 for p in points)


def test_training_and_held_out_tasks_are_apart_and_solvable() -> None:
    assert not set(TRAINING) & set(HELD_OUT)
    assert set(TRAINING) | set(HELD_OUT) <= set(EXPERTS)
    assert not set(EXPERTS) & set(UNSOLVED)
    assert [task.slug for task in tasks] == list(TRAINING)
    assert [task.args["page"] for task in held_out] == list(HELD_OUT)
    assert env.templates["miniwob"]


def test_a_page_that_does_not_exist_is_answered_with_those_near_it() -> None:
    with pytest.raises(LabError, match="click-button"):
        pages.url("click-buton")


def test_a_screen_that_does_not_fit_the_page_is_refused() -> None:
    assert screen_of({"width": 160, "height": 210}) == ((160, 210), 1.0)
    with pytest.raises(LabError, match="the height is 420"):
        screen_of({"width": 320, "height": 320})


def test_a_page_that_is_kept_begins_with_the_pixels_of_one_that_is_loaded(small) -> None:
    """Whatever the last episode clicked, dragged, typed or left undone."""
    pages_ = ("click-test-2", "click-dialog", "click-color", "click-option", "enter-text")

    async def scenario():
        async with small.lend() as desktop:
            for page in pages_:
                fresh, *kept = [
                    await play_expert(
                        desktop, page, seed, config=expert_config(), args={"keep_page": keep}
                    )
                    for seed, keep in ((1, False), (2, True), (1, True))
                ]
                assert desktop.page == pages.url(page)
                assert [episode.reward for episode in kept] == [1.0, 1.0]
                assert kept[0].screenshots[0] != fresh.screenshots[0]
                assert kept[1].screenshots[0] == fresh.screenshots[0], page

    asyncio.run(scenario())


@pytest.fixture
def few(monkeypatch):
    """Two desktops record four demos at a time."""
    needs_chromium()
    pytest.importorskip("miniwob", reason="MiniWoB++ is not installed")
    monkeypatch.setattr(recorder, "AT_ONCE", 2)
    monkeypatch.setattr(recorder, "BLOCK", 4)


def test_a_demonstration_depends_on_its_number_alone(few) -> None:
    """Not on the desktop, nor on what was recorded before: a run can be repeated."""
    first, second = (expert_player(noise=0.05), expert_player(noise=0.05))
    second(4)  # another block first, on the same desktops
    for index in range(4):
        assert first(index).messages == second(index).messages
        assert first(index).images == second(index).images
    assert len({str(first(index).messages[-1]) for index in range(4)}) == 4


def test_a_shaky_hand_is_shown_hit_or_miss_and_a_steady_one_hits(few) -> None:
    said = [expert_player(noise=noise)(1).messages[-1]["tool_calls"] for noise in (0, 0.3)]
    aims = [calls[0]["function"]["arguments"] for calls in said]
    assert aims[0] != aims[1]
    assert {*aims[1]} == {"action", "x", "y"}
    assert all(0 <= aim[axis] <= 1000 for aim in aims for axis in "xy")


@pytest.mark.parametrize("options", [{"noise": "much"}, {"noise": 2}, {"mean_keys": 3}])
def test_options_that_no_expert_takes_are_refused(options) -> None:
    with pytest.raises(LabError, match=r"sft\.player"):
        expert_player(**options)


def expert_player(**options):
    args = {"page": "click-test-2", "width": 160, "height": 210, "keep_page": True}
    return demonstrator(
        "miniwob",
        PromptContext(None, ()),
        args,
        options,
        space="0-1000",
        max_keys=1,
        turns=1,
        seed=0,
    )


@pytest.mark.nightly
def test_a_hundred_episodes_in_a_row_leak_nothing(small) -> None:
    """Processes, sockets and threads as before; memory within a page's worth."""
    pages_ = list(TRAINING)
    me = psutil.Process()

    def held():
        family = me.children(recursive=True)
        memory = sum(p.memory_info().rss for p in family if p.is_running())
        return len(family), len(me.net_connections()), me.num_threads(), memory / 2**20

    play_all(small, [(page, 7) for page in pages_])
    before = held()
    episodes = play_all(small, [(pages_[i % len(pages_)], 100 + i) for i in range(100)])
    after = held()
    assert sum(bool(e.success) for e in episodes) >= 95
    assert after[0] <= before[0] + 4  # Chromium keeps a spare renderer or two
    assert after[1] <= before[1] + 8  # page server connections that the browser keeps alive
    assert after[2] <= before[2] + 8
    assert after[3] <= before[3] * 1.3
    assert small.booted == small.count
