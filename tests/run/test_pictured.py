"""Which episodes keep their screenshots."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from cua_lab.run.pictured import (
    KEPT_BEFORE,
    PICTURED,
    by_turn,
    kept_after,
    kept_before,
    worth,
)


def episode(name: str, hit: bool | None, *, task: str = "a", reward: float | None = 0.5) -> Any:
    return SimpleNamespace(id=name, success=hit, reward=reward, task=task)


def test_misses_are_kept_before_and_of_them_those_that_were_hit_after() -> None:
    starts = [str(i) for i in range(4 * KEPT_BEFORE)]
    before = [episode(name, hit=int(name) % 2 == 0) for name in starts]
    kept = kept_before(before, ["a"])
    assert kept == {name for name in starts if int(name) % 2}.intersection(
        starts[: 2 * KEPT_BEFORE]
    )
    after = [episode(name, hit=int(name) % 5 == 0) for name in starts]
    shown = kept_after(after, dict.fromkeys(kept, 0.0), ["a"])
    learnt = {name for name in kept if int(name) % 5 == 0}
    assert learnt <= shown <= kept
    assert len(shown) == PICTURED


def test_each_variant_gets_its_share() -> None:
    starts = [episode(str(i), hit=False, task="ab"[i >= 100]) for i in range(200)]
    kept = kept_before(starts, ["a", "b"])
    assert sum(int(name) < 100 for name in kept) == KEPT_BEFORE // 2 == len(kept) // 2


def test_an_episode_that_failed_is_shown_only_for_want_of_others() -> None:
    assert worth(None, None) == math.inf
    assert kept_before([episode("x", None, reward=None), episode("y", True)], ["a"]) == {"x", "y"}
    assert kept_after([episode("x", None, reward=None)], {"x": 0.0}, ["a"]) == set()


def test_a_turn_has_the_picture_that_it_saw_whatever_was_refused_before() -> None:
    def turns(*saw: int | None) -> Any:
        return SimpleNamespace(actions=[SimpleNamespace(saw=seen) for seen in saw])

    assert by_turn("abc", turns(0, 1)) == (["a", "b"], "c")
    assert by_turn("ab", turns(0, 0, 1)) == (["a", "a", "b"], None)
    assert by_turn("a", turns(0, 0)) == (["a", "a"], None), "all was refused"
    assert by_turn("ab", turns(None, 0)) == ([None, "a"], "b"), "the first screen was not shown"
    assert by_turn("", turns()) == ([], None)
