"""The score of a settle strategy tells waiting for the page from waiting for the clock."""

import asyncio

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons.scored_settling import KINDS, DrawnScreen, SettleScore, page_of, settle_score


def quiet(quiet_s, most_s):
    async def strategy(screen):
        while screen.now < most_s and await screen.change(min(quiet_s, most_s - screen.now)):
            pass
        return screen.latest()

    return strategy


def sleep(wait_s):
    async def strategy(screen):
        await screen.pause(wait_s)
        return await screen.frame()

    return strategy


def scored(strategy, each=40) -> SettleScore:
    return asyncio.run(settle_score(strategy, each))


def test_whoever_looks_at_once_sees_every_change_too_late() -> None:
    score = scored(sleep(0))
    assert score.stale == {kind: 0 if kind == "nothing" else 40 for kind in KINDS}
    assert score.ms == pytest.approx(4.5)


def test_a_sleep_pays_its_time_everywhere_and_still_misses_long_movements() -> None:
    score = scored(sleep(0.3))
    assert 0 < score.stale["glides"] == score.all_stale < 40
    assert score.ms == pytest.approx(304)
    assert scored(sleep(0.55)).all_stale == 0


def test_a_short_quiet_is_fooled_by_a_pause_and_a_longer_one_is_not() -> None:
    assert scored(quiet(0.06, 1)).stale["two steps"] > 20
    patient = scored(quiet(0.12, 0.6))
    assert patient.all_stale == 0
    assert patient.ms < 350 < scored(sleep(0.45)).ms


def test_a_strategy_that_never_gives_up_is_told_so() -> None:
    with pytest.raises(LabError, match="a page never rests"):
        scored(quiet(0.12, 60))


def test_waiting_for_no_time_passes_some() -> None:
    async def hasty(screen):
        while True:
            await screen.change(0)

    with pytest.raises(LabError, match="give up sooner"):
        scored(hasty, each=1)


def test_a_change_is_told_when_it_comes_and_once() -> None:
    async def follow() -> list[tuple[bool, float, int]]:
        screen = DrawnScreen((0.02, 0.05))
        told = []
        for wait_s in (0.01, 0.02, 0.5, 0.1):
            told.append((await screen.change(wait_s), screen.now, int(screen.latest().max())))
        return told

    said = asyncio.run(follow())
    assert [s[0] for s in said] == [False, True, True, False]
    assert [s[1] for s in said] == pytest.approx([0.01, 0.02, 0.05, 0.15])
    assert [s[2] for s in said] == [0, 1, 2, 2]


def test_pages_are_functions_of_their_seed() -> None:
    assert page_of("glides", 3) == page_of("glides", 3) != page_of("glides", 4)
    assert all(list(page_of(kind, 1)) == sorted(set(page_of(kind, 1))) for kind in KINDS)
