"""Group advantages: what siblings tell about an episode, and what must not count."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.training.advantages import group_advantages

finite = st.floats(-100, 100).map(lambda value: round(value, 3))


def test_a_reward_is_compared_with_its_own_group_only():
    """Per-batch statistics punish hard tasks (grpo-flat#2)."""
    alone = group_advantages([1.0, 0.0], ["a", "a"])
    among_others = group_advantages([1.0, 100.0, 0.0, 90.0], ["a", "b", "a", "b"])
    assert among_others.values[0] == alone.values[0] == pytest.approx(1.0, abs=1e-5)
    assert among_others.values[2] == alone.values[1]


def test_the_values_are_those_of_the_formula():
    """Rewards 0, 0, 0, 1: mean 1/4, population std sqrt(3)/4."""
    result = group_advantages([0.0, 0.0, 0.0, 1.0], ["g"] * 4, eps=0.0)
    assert result.values == pytest.approx([-1 / math.sqrt(3)] * 3 + [math.sqrt(3)])
    (stats,) = result.groups
    assert (stats.n, stats.failed, stats.mean) == (4, 0, 0.25)
    assert stats.std == pytest.approx(math.sqrt(3) / 4)


def test_without_std_the_advantage_is_the_distance_from_the_mean():
    """Dr.GRPO (arXiv 2503.20783)."""
    assert group_advantages([0.0, 1.0], ["g", "g"], scale="none").values == (-0.5, 0.5)


@pytest.mark.parametrize("reward", [1.0, 0.0, -3.0, 0.1, 1e-12])
@pytest.mark.parametrize("scale", ["std", "none"])
def test_equal_rewards_give_exactly_zero_and_the_group_is_counted(reward, scale):
    """trl#5640. Three times 0.1 has a mean of 0.10000000000000002: equality is tested, not std."""
    result = group_advantages([reward] * 3, ["g"] * 3, scale=scale)
    assert result.values == (0.0, 0.0, 0.0)
    assert result.zero_variance_groups == 1
    assert not result.informative


def test_rounding_is_not_a_difference():
    assert group_advantages([0.3, 0.1 + 0.2], ["g", "g"]).values == (0.0, 0.0)


def test_an_episode_alone_in_its_group_learns_nothing():
    result = group_advantages([0.7], ["g"])
    assert result.values == (0.0,)
    assert result.groups[0].zero_variance


def test_a_failed_episode_leaves_its_siblings_as_if_it_had_not_been_there():
    """A rejected sibling counted as 0 turned 1.0 into -49.5 (verl#6375; NeMo-RL#2207)."""
    without = group_advantages([1.0, 0.0, 0.5], ["g"] * 3)
    result = group_advantages([1.0, None, 0.0, 0.5], ["g"] * 4)
    assert result.values[0:1] + result.values[2:] == without.values
    assert math.isnan(result.values[1])
    assert (result.groups[0].n, result.groups[0].failed) == (3, 1)


def test_the_status_decides_what_failed_whatever_the_reward_says():
    result = group_advantages(
        [1.0, math.nan, 0.0], ["g"] * 3, statuses=["completed", "failed", "truncated"]
    )
    assert result.failed_episodes == 1
    assert result.values[0] == pytest.approx(1.0, abs=1e-5)


def test_a_group_in_which_all_failed_has_no_mean_and_is_not_called_zero_variance():
    result = group_advantages([None, None], ["g", "g"])
    assert all(math.isnan(value) for value in result.values)
    assert math.isnan(result.groups[0].mean)
    assert result.zero_variance_groups == 0
    assert not result.informative


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused_by_name(bad):
    """trl#5775: a NaN silently spoils the whole group."""
    with pytest.raises(ValueError, match=r"episode 'e7' in group 'clicks'"):
        group_advantages([1.0, bad], ["clicks", "clicks"], episodes=["e6", "e7"])


def test_a_completed_episode_without_a_reward_is_refused():
    """Missing is not zero, and not a failure either unless somebody says so."""
    with pytest.raises(ValueError, match="status is 'completed'"):
        group_advantages([None], ["g"], statuses=["completed"])


def test_the_parts_of_a_split_episode_count_once_and_share_the_advantage():
    whole = group_advantages([1.0, 0.0], ["g", "g"])
    split = group_advantages([1.0, 1.0, 1.0, 0.0], ["g"] * 4, episodes=["a", "a", "a", "b"])
    assert split.values == (whole.values[0],) * 3 + (whole.values[1],)
    assert split.groups[0].n == 2


def test_parts_of_one_episode_that_disagree_are_refused():
    with pytest.raises(ValueError, match="share one reward"):
        group_advantages([1.0, 0.0], ["g", "g"], episodes=["a", "a"])


def test_lengths_that_differ_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="3 rewards but 2 groups"):
        group_advantages([1.0, 0.0, 0.0], ["g", "g"])


def test_nothing_gives_nothing():
    assert group_advantages([], []).values == ()


@given(st.lists(finite, min_size=2, max_size=8), st.floats(0.1, 100))
def test_scaling_all_rewards_changes_nothing_under_std(rewards, factor):
    """UniRL#146."""
    groups = ["g"] * len(rewards)
    one = group_advantages(rewards, groups, eps=0.0)
    other = group_advantages([factor * reward for reward in rewards], groups, eps=0.0)
    assert one.values == pytest.approx(other.values, abs=1e-5)


@given(st.lists(finite, min_size=1, max_size=8), st.sampled_from(["std", "none"]))
def test_the_advantages_of_a_group_add_up_to_nothing(rewards, scale):
    values = group_advantages(rewards, ["g"] * len(rewards), scale=scale).values
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200, 1e308])
def test_advantages_of_rewards_of_any_size_are_those_of_their_ranks(size: float) -> None:
    """Squares of 1e200 are infinite, and so is 1e308 minus -1e308; the advantages are +1 and -1."""
    found = group_advantages([size, -size], ["g", "g"], eps=0.0)
    assert found.values == pytest.approx((1.0, -1.0))
    assert found.groups[0].std == pytest.approx(size)
    assert not found.groups[0].zero_variance
    equal = group_advantages([size, size], ["g", "g"])
    assert equal.values == (0.0, 0.0)
