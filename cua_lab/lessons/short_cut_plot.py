"""Runs on a reward with a short cut: what is paid, and what was meant, step by step.

Invariant: both lines of a panel are of the same episodes, those that GRPO trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, paper

if TYPE_CHECKING:
    from cua_lab.records import EpisodeRow, Step

PANEL = {"reward_mean": "reward", "success": "done as meant"}


def short_cuts(episodes: Sequence[EpisodeRow], phase: str) -> tuple[int, int]:
    """Episodes of a phase with a full reward that did not do what was meant, and all that were
    graded: one click can check one errand, so nothing else earns everything."""
    graded = [e for e in episodes if e.phase == phase and e.reward is not None]
    return sum(e.reward == 1 and not e.success for e in graded), len(graded)


def short_cut_figure(runs: Mapping[str, Sequence[Step]]) -> Picture:
    """A panel a run: the mean reward and the share of episodes that did what was meant."""
    with paper():
        figure = Picture(figsize=(10.5, 3.1), layout="constrained")
        grid = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for axes, (title, steps) in zip(grid, runs.items(), strict=True):
            for k, (name, label) in enumerate(PANEL.items()):
                known = [(s.step, v) for s in steps if (v := getattr(s, name)) is not None]
                axes.plot(
                    [step for step, _ in known], [value for _, value in known], label=label,
                    color=COLOURS[k], linestyle=DASHES[k],
                )  # fmt: skip
            axes.set_title(title)
            axes.set_xlabel("GRPO step")
            axes.set_ylim(-0.35, 1.05)
        grid[0].legend(loc="upper left")
        figure.alt = (
            f"A panel each for {', '.join(runs)}: over GRPO steps, the mean reward and the share of"
            " episodes that did what was meant."
        )
    return figure
