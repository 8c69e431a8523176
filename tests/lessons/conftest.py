"""One small policy that has learnt to click, for all tests of the loops: 5 CPU-seconds."""

import copy
from collections.abc import Callable

import pytest

from cua_lab.demonstrators.demos import ClickPlayer, corpus_of
from cua_lab.lessons.loops.click_task import click_player
from cua_lab.lessons.loops.sft import sft
from cua_lab.policy.model import SHAPES
from cua_lab.policy.policy import Policy, build_policy


@pytest.fixture(scope="session")
def player() -> ClickPlayer:
    return click_player()


@pytest.fixture(scope="session")
def _warm(player: ClickPlayer) -> tuple[Policy, dict]:
    policy = build_policy(SHAPES["smoke"], corpus_of((player,)), seed=0)
    for _ in sft(policy, player, steps=100):
        pass
    return policy, copy.deepcopy(policy.model.state_dict())


@pytest.fixture
def warm(_warm: tuple[Policy, dict]) -> Policy:
    """The policy after its warm-up; a test may train it."""
    policy, weights = _warm
    policy.model.load_state_dict(weights)
    return policy


@pytest.fixture
def fresh(player: ClickPlayer) -> Callable[[], Policy]:
    """Policies that have learnt nothing, all with the same weights."""
    corpus = corpus_of((player,), count=40)
    return lambda: build_policy(SHAPES["smoke"], corpus, seed=0)
