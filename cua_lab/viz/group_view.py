"""A GRPO group at a glance: what each member scored, and the advantage that follows from it.

Invariant: the advantages drawn are those of `cua_lab.training.advantages` for these very rewards; a
failed member has neither reward nor advantage and is drawn as absent, not as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cua_lab.errors import LabError
from cua_lab.training.advantages import Scale, group_advantages
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, PAPER, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UP, DOWN = COLOURS[0], COLOURS[1]


def group_view(group: Sequence[Any], *, scale: Scale = "std", title: str = "") -> Figure:
    """Rewards (above) and advantages (below) of one group's members.

    `group`: rewards (`None` for a failed member), or samples or episodes (`reward`, `status`).
    """
    if not group:
        raise LabError("a group view needs at least one member")
    rewards = [_reward(member) for member in group]
    result = group_advantages(rewards, ["group"] * len(rewards), scale=scale)
    stats = result.groups[0]
    with paper():
        figure = Picture(figsize=(max(6.6, 1.4 + 0.55 * len(rewards)), 4.6), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        _rewards(top, rewards, stats.mean, stats.std)
        _advantages(bottom, result.values, stats.zero_variance)
        figure.suptitle(title or f"a group of {len(rewards)}", x=0.01, ha="left", fontsize=13)
    return figure


def _reward(member: Any) -> float | None:
    if member is None or isinstance(member, int | float):
        return member
    return None if member.status == "failed" else member.reward


def _rewards(axis: Axes, rewards: Sequence[float | None], mean: float, std: float) -> None:
    known = [(i, r) for i, r in enumerate(rewards) if r is not None]
    axis.plot([i for i, _ in known], [r for _, r in known], "o", color=INK, markersize=7)
    if known:
        axis.axhline(mean, color=INK, linewidth=1.2, linestyle=(0, (5, 2)))
        axis.axhspan(mean - std, mean + std, color=INK, alpha=0.08, linewidth=0)
        axis.vlines([i for i, _ in known], mean, [r for _, r in known], color=INK, linewidth=1)
    for i, reward in enumerate(rewards):
        if reward is None:
            axis.annotate(
                "failed", (i, 0.5), xycoords=("data", "axes fraction"), rotation=90,
                ha="center", va="center", backgroundcolor=PAPER,
            )  # fmt: skip
    axis.set_title(f"Reward: mean {mean:.3f}, spread {std:.3f}" if known else "Reward: none graded")
    axis.set_ylabel("reward")


def _advantages(axis: Axes, values: Sequence[float], zero_variance: bool) -> None:
    heights = [0.0 if math.isnan(value) else value for value in values]
    bars = axis.bar(range(len(values)), heights, width=0.62, edgecolor=INK, linewidth=0.8)
    for bar, value in zip(bars, values, strict=True):
        bar.set_facecolor(UP if value > 0 else DOWN)
        bar.set_hatch("" if value > 0 else "///")
        if not math.isnan(value):
            axis.annotate(
                f"{value:+.2f}", (bar.get_x() + bar.get_width() / 2, value), ha="center",
                va="bottom" if value >= 0 else "top", xytext=(0, 2 if value >= 0 else -2),
                textcoords="offset points", fontsize=8.5,
            )  # fmt: skip
    axis.axhline(0, color=INK, linewidth=1)
    axis.margins(y=0.22)
    if zero_variance:
        axis.set_ylim(-1, 1)
    axis.set_title(
        "Advantage: all rewards are equal, nothing to learn" if zero_variance
        else "Advantage: more of what is above 0, less of what is below"
    )  # fmt: skip
    axis.set_xticks(range(len(values)), [str(i) for i in range(len(values))])
    axis.set_xlabel("member of the group")
    axis.set_ylabel("advantage")
