"""What a grader leaves inside a group: every member's reward, and the groups that teach nothing.

Invariant: the spread drawn and printed is the population standard deviation within a group, which
is what group-relative advantages divide by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, MARKERS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = Sequence[Sequence[float]]
"""Rewards, one row a group."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A grader's groups in four numbers."""

    mean: float
    within: float
    """Mean over groups of the standard deviation inside."""
    silent: int
    """Groups whose members all got the same reward."""
    groups: int


def spread_of(groups: Groups) -> Spread:
    """The numbers of a grader."""
    inside = [pstdev(group) for group in groups]
    mean = fmean(reward for group in groups for reward in group)
    return Spread(mean, fmean(inside), sum(std == 0 for std in inside), len(groups))


def spread_figure(graders: Mapping[str, Groups]) -> Figure:
    """A panel for each grader: a column a group, a dot a member; silent groups are crossed out."""
    with paper():
        figure = Picture(figsize=(10.5, 3.4), layout="constrained")
        panels = figure.subplots(1, len(graders), sharey=True, squeeze=False)[0]
        for axes, (name, groups) in zip(panels, graders.items(), strict=True):
            _panel(axes, name, groups)
        panels[0].set_ylabel("reward")
        panels[0].set_ylim(-0.09, 1.09)
    return figure


def _panel(axes: Axes, name: str, groups: Groups) -> None:
    spread = spread_of(groups)
    for column, group in enumerate(groups):
        silent = pstdev(group) == 0
        axes.plot([column, column], [min(group), max(group)], color=INK, linewidth=1, zorder=1)
        axes.scatter(
            _beeswarm(column, group), group, s=26, zorder=2, edgecolor=INK, linewidth=0.6,
            color=COLOURS[1 if silent else 0], marker="X" if silent else "o",
        )  # fmt: skip
    axes.set_title(f"{name}\n{spread.silent} of {spread.groups} groups teach nothing")
    axes.set_xticks(range(len(groups)), [str(i) for i in range(len(groups))])
    axes.set_xlabel("group (one start board)")


def _beeswarm(column: int, rewards: Sequence[float]) -> list[float]:
    """Equal rewards side by side, so that every member is seen and none leaves its column."""
    step = min(0.09, 0.84 / len(rewards))
    seen: dict[float, int] = {}
    xs = []
    for reward in rewards:
        k = seen.get(reward, 0)
        seen[reward] = k + 1
        xs.append(column + step * ((k + 1) // 2) * (1 if k % 2 else -1))
    return xs


def silence(rate: float, members: int) -> float:
    """The chance that a group says nothing: all of its members succeed, or all fail."""
    return float(rate**members + (1 - rate) ** members)


def silence_figure(sizes: Sequence[int]) -> Figure:
    """That chance over the rate of success, a line for each size of a group."""
    rates = [k / 40 for k in range(41)]
    with paper():
        figure = Picture(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots()
        for k, members in enumerate(sizes):
            chances = [silence(rate, members) for rate in rates]
            axes.plot(
                rates, chances, color=COLOURS[k], linestyle=DASHES[k], marker=MARKERS[k],
                markevery=4, label=f"{members} members",
            )  # fmt: skip
        axes.set_xlabel("rate of success of the policy")
        axes.set_ylabel("chance of a silent group")
        axes.set_ylim(0, 1.02)
        axes.legend(loc="upper center")
    return figure
