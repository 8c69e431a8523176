"""Group advantages: how much better an episode did than its siblings from the same start.

Data model: rows (one per training sequence) with a reward, a group and an episode; the rows of one
episode that was split into several sequences share its reward. Per group g, over the episodes that
count:

    GRPO      A_i = (r_i - mean_g) / (std_g + eps)         arXiv 2402.03300
    Dr.GRPO   A_i =  r_i - mean_g                          arXiv 2503.20783

std is the population's (divide by n). Invariant: an episode that failed is absent from mean, std
and n, and its rows carry NaN ("no advantage"), never 0; a group in which all rewards are equal
yields exactly 0.0 and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Scale = Literal["std", "none"]

EQUAL = 1e-9
"""Rewards closer than this share of their size are equal: 0.3 and 0.1 + 0.2 differ by 6e-17, and
dividing by that would turn rounding into an advantage of 1."""

ORDINARY = (1e-100, 1e100)
"""Rewards of another size are scaled before they are squared: 1e200 squared is no float, and 1e-200
squared is 0."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """What one group's rewards looked like."""

    group: str
    n: int
    """Episodes that count: graded ones, each once however many rows it has."""
    failed: int
    """Episodes left out."""
    mean: float
    """NaN where no episode counts."""
    std: float
    """Population standard deviation; exactly 0.0 where all rewards are equal, NaN where n = 0."""
    zero_variance: bool
    """At least one episode counts and all rewards are equal: the group teaches nothing."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """One value per row, in the rows' order, and the statistics of each group."""

    values: tuple[float, ...]
    """NaN for the rows of failed episodes."""
    groups: tuple[GroupStats, ...]
    """In order of first appearance."""

    @property
    def zero_variance_groups(self) -> int:
        """How many groups had nothing to tell apart."""
        return sum(stats.zero_variance for stats in self.groups)

    @property
    def failed_episodes(self) -> int:
        """How many episodes were left out."""
        return sum(stats.failed for stats in self.groups)

    @property
    def informative(self) -> bool:
        """Whether any row has an advantage other than 0: otherwise a step would change nothing."""
        return any(value != 0.0 and not math.isnan(value) for value in self.values)


def group_advantages(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    *,
    episodes: Sequence[str] | None = None,
    statuses: Sequence[str] | None = None,
    scale: Scale = "std",
    eps: float = 1e-6,
) -> Advantages:
    """Advantages of rows, each within its own group.

    `episodes` names the episode of each row (default: every row is its own). `statuses` are those
    of `Sample`; without them a reward of `None` means failed. `scale="none"` is Dr.GRPO.
    """
    _check_arguments(rewards, groups, episodes, statuses, scale, eps)
    names = [str(i) for i in range(len(rewards))] if episodes is None else list(episodes)
    by_group: dict[str, dict[str, float | None]] = {}
    for row, (reward, group, episode) in enumerate(zip(rewards, groups, names, strict=True)):
        graded = _graded(reward, None if statuses is None else statuses[row], episode, group)
        members = by_group.setdefault(group, {})
        if episode in members and members[episode] != graded:
            raise ValueError(
                f"episode {episode!r} of group {group!r} has parts with rewards "
                f"{members[episode]} and {graded} (row {row}); all parts share one reward"
            )
        members[episode] = graded
    stats = {group: _group_stats(group, members) for group, members in by_group.items()}
    values = tuple(
        _advantage(by_group[group][episode], stats[group], scale, eps)
        for group, episode in zip(groups, names, strict=True)
    )
    return Advantages(values, tuple(stats.values()))


def _graded(reward: float | None, status: str | None, episode: str, group: str) -> float | None:
    """The reward as a finite float, or `None` for an episode that failed."""
    if status == "failed" or (status is None and reward is None):
        return None
    if reward is None or not math.isfinite(reward):
        raise ValueError(
            f"the reward of episode {episode!r} in group {group!r} is {reward}"
            + (f" although its status is {status!r}" if status else "")
            + '; a grade that could not be read belongs in status "failed", not in the statistics'
        )
    return float(reward)


def _group_stats(group: str, members: dict[str, float | None]) -> GroupStats:
    """Mean and spread over the episodes that count (exact sums: their order does not matter)."""
    graded = [reward for reward in members.values() if reward is not None]
    n, failed = len(graded), len(members) - len(graded)
    if n == 0:
        return GroupStats(group, 0, failed, math.nan, math.nan, zero_variance=False)
    largest = max(map(abs, graded))
    ordinary = largest == 0 or ORDINARY[0] <= largest <= ORDINARY[1]
    # A power of two: dividing by it rounds nothing.
    unit = 1.0 if ordinary else 2.0 ** (math.frexp(largest)[1] - 1)
    scaled = [reward / unit for reward in graded]
    if max(scaled) - min(scaled) <= EQUAL * max(map(abs, scaled)):
        return GroupStats(group, n, failed, graded[0], 0.0, zero_variance=True)
    mean = math.fsum(scaled) / n
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in scaled) / n)
    return GroupStats(group, n, failed, mean * unit, std * unit, zero_variance=False)


def _advantage(reward: float | None, stats: GroupStats, scale: Scale, eps: float) -> float:
    if reward is None:
        return math.nan
    if stats.zero_variance:
        return 0.0
    # By halves: the difference of 1e308 and -1e308 is no float, their half is.
    half = reward / 2 - stats.mean / 2
    return half / (stats.std + eps) * 2 if scale == "std" else half * 2


def _check_arguments(
    rewards: Sequence[float | None],
    groups: Sequence[str],
    episodes: Sequence[str] | None,
    statuses: Sequence[str] | None,
    scale: str,
    eps: float,
) -> None:
    for name, given in (("groups", groups), ("episodes", episodes), ("statuses", statuses)):
        if given is not None and len(given) != len(rewards):
            raise ValueError(f"{len(rewards)} rewards but {len(given)} {name}; give one per row")
    if scale not in ("std", "none"):
        raise ValueError(f'scale is {scale!r}; use "std" (GRPO) or "none" (Dr.GRPO)')
    if not eps >= 0.0:
        raise ValueError(f"eps is {eps}; it must be 0 or more")
