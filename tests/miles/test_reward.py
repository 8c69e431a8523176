"""Group statistics under Miles: a failed episode is in no mean, no deviation and no count."""

import asyncio
import math
from typing import Any

import pytest

from cua_lab.errors import LabError
from cua_lab.miles.recipe import KEY, load_miles_recipe
from cua_lab.miles.reward import (
    check_equal_steps,
    graded_advantages,
    post_process_rewards,
    reward_func,
    token_mean,
)
from cua_lab.miles.stopping import RunEnds
from cua_lab.recipes.loader import to_tree
from cua_lab.recipes.settings import GrpoSettings
from cua_lab.training.advantages import group_advantages
from tests.miles.standin import reward_args, sample_classes


def made(
    cls: Any, group: int, index: int, reward: float | None, *, part: int = 0, parts: int = 1
) -> Any:
    about = {"episode": f"g{group}-{index}", "group": f"g{group}", "part": part, "parts": parts}
    return cls(
        group_index=group,
        index=index,
        reward=0.0 if reward is None else reward,
        metadata={"cua_lab": about | {"reward": reward, "graded": reward is not None}},
    )


@pytest.fixture(params=sample_classes())
def cls(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_failure_does_not_reward_its_siblings(cls: Any) -> None:
    """verl#6375: counted as 0, a rejected sibling turned an advantage of 1.0 into -49.5; Miles'
    own normalisation would give +0.5 +0.5 +0.5 -1.5 here."""
    samples = [made(cls, 0, i, reward) for i, reward in enumerate([1.0, 1.0, 1.0, None])]
    raw, advantages = graded_advantages(reward_args(), samples)
    assert advantages == [0.0, 0.0, 0.0, 0.0]
    assert raw == [1.0, 1.0, 1.0, 1.0]


def test_advantages_are_those_of_our_trainer(cls: Any) -> None:
    rewards = [0.1, None, 0.7, 0.4, 0.9, 0.9, None, 0.2]
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    samples = [made(cls, g, i, r) for i, (g, r) in enumerate(zip(groups, rewards, strict=True))]
    _, advantages = graded_advantages(reward_args(), samples)
    expected = group_advantages(
        rewards, [str(g) for g in groups], scale=GrpoSettings().scale
    ).values
    assert advantages == [0.0 if math.isnan(value) else value for value in expected]


def test_dr_grpo_follows_miles_own_flag(cls: Any) -> None:
    samples = [made(cls, 0, i, reward) for i, reward in enumerate([0.0, 1.0])]
    _, advantages = graded_advantages(reward_args(grpo_std_normalization=False), samples)
    assert advantages == [-0.5, 0.5]


def test_an_episode_of_several_samples_counts_once(cls: Any) -> None:
    split = [made(cls, 0, 0, 1.0, part=p, parts=3) for p in range(3)]
    _, advantages = graded_advantages(reward_args(), [*split, made(cls, 0, 1, 0.0)])
    assert advantages == pytest.approx([1, 1, 1, -1], abs=1e-5)


def test_the_logged_mean_is_that_of_graded_episodes(cls: Any) -> None:
    """One number per sample is logged; a group that failed as a whole gets the step's mean."""
    rewards = [[0.2, None], [0.6, 1.0], [None, None]]
    samples = [made(cls, g, i, r) for g, row in enumerate(rewards) for i, r in enumerate(row)]
    raw, _ = graded_advantages(reward_args(), samples)
    assert raw == pytest.approx([0.2, 0.2, 0.6, 1.0, 0.6, 0.6])


def test_a_step_in_which_everything_failed_teaches_nothing(cls: Any) -> None:
    samples = [made(cls, 0, i, None) for i in range(2)]
    assert graded_advantages(reward_args(), samples) == ([0.0, 0.0], [0.0, 0.0])


def test_rewards_come_single_in_lists_and_in_lists_of_lists(cls: Any) -> None:
    """Miles asks for one, for a batch, and, of a group whose episodes were split, for both."""
    one, two = made(cls, 0, 0, 0.25), made(cls, 0, 1, None)
    assert asyncio.run(reward_func(None, one)) == 0.25
    assert asyncio.run(reward_func(None, [one, two])) == [0.25, 0.0]
    assert asyncio.run(reward_func(None, [[one], two], evaluation=True)) == [[0.25], 0.0]


def test_other_estimators_and_foreign_samples_are_refused(cls: Any) -> None:
    with pytest.raises(LabError, match="must be grpo or gspo"):
        graded_advantages(reward_args(advantage_estimator="ppo"), [made(cls, 0, 0, 1.0)])
    with pytest.raises(LabError, match="did not come from cua_lab"):
        graded_advantages(reward_args(), [cls(index=0)])


def miles_loss(advantages: list[float], lengths: list[int], batch: int) -> float:
    """Miles' FSDP reduction of A * 1 per token: each sample's mean, summed, over the batch."""
    return sum(a * n / n for a, n in zip(advantages, lengths, strict=True) if n) / batch


def test_weighted_advantages_make_miles_mean_over_samples_the_mean_over_tokens() -> None:
    """miles#3231: its own flag for it gives the SUM of the tokens' gradients under FSDP."""
    advantages, tokens = [1.0, -0.5, 2.0, 0.0], [10, 40, 2, 0]
    weighted = token_mean(advantages, tokens, batch=4)
    over_tokens = sum(a * n for a, n in zip(advantages, tokens, strict=True)) / sum(tokens)
    assert miles_loss(weighted, tokens, 4) == pytest.approx(over_tokens)
    assert miles_loss(advantages, tokens, 4) != pytest.approx(over_tokens)
    assert token_mean([1.0, 1.0], [0, 0], batch=2) == [0.0, 0.0]


def test_each_step_of_a_rollout_is_averaged_over_its_own_tokens() -> None:
    assert token_mean([1.0, 1.0, 1.0, 1.0], [1, 3, 10, 10], batch=2) == [0.5, 1.5, 1.0, 1.0]


def test_the_recipe_says_which_mean(cls: Any) -> None:
    """What reaches Miles: advantages times n_i N / sum(n), or as they are."""
    samples = [made(cls, 0, i, reward) for i, reward in enumerate([0.0, 1.0])]
    for sample, count in zip(samples, (1, 3), strict=True):
        sample.loss_mask = [1] * count
    sizes = {"global_batch_size": 2, "actor_num_nodes": 1, "actor_num_gpus_per_node": 1}
    for normalise, expected in (("token", [-0.5, 1.5]), ("sequence", [-1.0, 1.0])):
        recipe = load_miles_recipe(overrides=[f"train.normalise={normalise}"])
        args = reward_args(**sizes, **{KEY: to_tree(recipe)})
        _, advantages = post_process_rewards(args, samples)
        assert advantages == pytest.approx(expected, abs=1e-5)


def test_steps_in_which_ranks_would_wait_for_each_other_are_refused() -> None:
    args = reward_args(global_batch_size=4, actor_num_nodes=1, actor_num_gpus_per_node=4)
    check_equal_steps(args, 8)
    with pytest.raises(LabError, match="after_rewrite=truncate"):
        check_equal_steps(args, 9)


def test_a_reward_without_its_episode_ends_the_run(cls: Any) -> None:
    """An `Exception` would be logged by Miles, and the group asked for again, without an end."""
    with pytest.raises(RunEnds, match=r"cua_lab\.miles\.generate"):
        asyncio.run(reward_func(None, cls(index=0)))
