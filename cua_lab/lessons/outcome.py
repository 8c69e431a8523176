"""What a run came to: how far one update moved, what was pressed, and what the score stands on.

Invariant: every bar carries its standard error and names what was played; what was not measured is
left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cua_lab.records import EpisodeRow, TaskSummary

WORDS = {
    "shuffled": "after, others' screens",
    "blank": "after, blank screens",
    "random": "random play",
}


def ratio_figure(panels: Mapping[str, np.ndarray], *, clip_low: float, clip_high: float) -> Figure:
    """A histogram of ratios for each name, with the edges of the clip."""
    reach = max(0.5, *(1.01 * float(np.abs(np.log(r)).max()) for r in panels.values()))
    bins = np.exp(np.linspace(-reach, reach, 61))
    with paper():
        figure = Picture(figsize=(10.5, 3.2), layout="constrained")
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, ratios) in zip(grid, panels.items(), strict=True):
            axes.hist(ratios, bins=bins, color=COLOURS[0], edgecolor=INK, linewidth=0.4)
            for edge in (1 - clip_low, 1 + clip_high):
                axes.axvline(edge, color=COLOURS[1], linestyle=(0, (5, 2)), linewidth=1.4)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks([0.6, 0.8, 1, 1.28, 1.6], ["0.6", "0.8", "1", "1.28", "1.6"])
            axes.minorticks_off()
            axes.set_title(name)
            axes.set_xlabel("ratio new / old (dashed: clip)")
        grid[0].set_ylabel("sampled tokens")
    return figure


def keys_of(episodes: Sequence[EpisodeRow]) -> list[int]:
    """How many keys each valid press had."""
    turns = [turn for episode in episodes for turn in episode.turns if turn.valid]
    return [len(turn.action["keys"]) for turn in turns if turn.action.get("keys")]


def keys_figure(groups: Mapping[str, Sequence[int]], *, limit: int) -> Figure:
    """Share of presses with 1, 2, ... keys, one panel a name; `limit` is the most in one call."""
    with paper():
        figure = Picture(figsize=(10.5, 2.9), layout="constrained")
        grid = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
        for index, (axes, (name, counts)) in enumerate(zip(grid, groups.items(), strict=True)):
            found = Counter(counts)
            axes.bar(
                list(found), [n / len(counts) for n in found.values()], color=COLOURS[index],
                edgecolor=INK, linewidth=0.6, hatch="/" if index else "",
            )  # fmt: skip
            mean = f"{np.mean(counts):.1f} on average" if counts else "none pressed"
            axes.set_title(f"{name}: {mean}")
            axes.set_xlim(0.3, limit + 0.7)
            axes.set_xticks([1, *range(5, limit + 1, 5)])
            axes.set_xlabel("keys in one call")
        grid[0].set_ylabel("share of calls")
    return figure


def outcome_bars(task: TaskSummary) -> dict[str, tuple[float, float]]:
    """(mean reward, standard error) by what was played; only what was measured."""
    measured = {"after the warm-up": task.reward_before, "after GRPO": task.reward_after}
    measured |= {WORDS[name]: value for name, value in task.ablations.items()}
    return {name: (e.mean, e.se) for name, e in measured.items() if e is not None}


def outcome_figure(tasks: Mapping[str, TaskSummary]) -> Figure:
    """Mean rewards with standard errors, one panel a task."""
    with paper():
        figure = Picture(figsize=(10.5, 2.9), layout="constrained")
        grid = figure.subplots(1, len(tasks), squeeze=False)[0]
        for axes, (name, task) in zip(grid, tasks.items(), strict=True):
            bars = outcome_bars(task)
            means = [mean for mean, _ in bars.values()]
            errors = [error if error == error else 0.0 for _, error in bars.values()]
            drawn = axes.barh(
                list(bars), means, xerr=errors, height=0.62, color=INK, edgecolor=INK, capsize=3
            )
            for bar, label in zip(drawn, bars, strict=True):
                bar.set_facecolor(COLOURS[0] if label == "after GRPO" else "#c9d3e6")
                bar.set_hatch("" if label.startswith("after") else "///")
            axes.invert_yaxis()
            axes.set_title(name)
            axes.set_xlabel("mean reward")
            axes.grid(False, axis="y")
    return figure
