"""Learning curves of a run: six small panels over GRPO steps, one line for each task.

Invariant: a step that did not measure a quantity leaves a gap in its line, never a zero; a panel in
which nothing was measured says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cua_lab.records import Step
from cua_lab.viz.picture import Picture
from cua_lab.viz.runfiles import Run, read_run
from cua_lab.viz.style import COLOURS, DASHES, INK, MARKERS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def zero_variance_share(step: Step) -> float | None:
    """Share of a step's groups whose members all got the same reward and so teach nothing."""
    if step.zero_variance_groups is None or not step.groups:
        return None
    return step.zero_variance_groups / step.groups


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart."""

    title: str
    hint: str
    value: Callable[[Step], float | None]
    spread: Callable[[Step], float | None] | None = None
    """Half the height of the band around the line."""
    upper: Callable[[Step], float | None] | None = None
    """A second, thin line."""
    share: bool = False
    """The value lies in 0..1."""


PANELS = (
    Panel("Reward", "mean; band: spread in a group", lambda s: s.reward_mean,
          spread=lambda s: s.reward_std),
    Panel("Success", "share of episodes", lambda s: s.success, share=True),
    Panel("Valid tool calls", "share of turns", lambda s: s.valid_tool_calls, share=True),
    Panel("Entropy", "nats a policy token", lambda s: s.entropy),
    Panel("Ratio new / old", "mean; thin: largest", lambda s: s.ratio_mean,
          upper=lambda s: s.ratio_max),
    Panel("Groups that teach nothing", "share with equal rewards", zero_variance_share, share=True),
)  # fmt: skip
READS = Panel("Screens read", "share said without a mistake", lambda s: s.screens_read, share=True)
"""Beside the others where a policy says what it sees."""


def curves(run: Run | str | Path, *, title: str | None = None) -> Figure:
    """Reward, success, valid calls, entropy, ratio and zero-variance groups over GRPO steps."""
    run = run if isinstance(run, Run) else read_run(run)
    with paper():
        figure = Picture(figsize=(10.5, 5.6), layout="constrained")
        axes = figure.subplots(2, 3, sharex=True)
        for axis, panel in zip(axes.flat, PANELS, strict=True):
            _panel(axis, panel, run)
        for axis in axes[-1]:
            axis.set_xlabel("GRPO step")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.suptitle(
            title or f"{run.path.name}: learning curves", x=0.01, ha="left", fontsize=13
        )
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def series(
    steps: Sequence[Step], value: Callable[[Step], float | None]
) -> tuple[list[int], list[float]]:
    """Step numbers and values; NaN where a step did not measure it, so that lines break."""
    measured = [value(step) for step in steps]
    return [s.step for s in steps], [math.nan if v is None else float(v) for v in measured]


def _panel(axis: Axes, panel: Panel, run: Run) -> None:
    any_measured = False
    for index, task in enumerate(run.tasks):
        steps = run.grpo(task)
        x, y = series(steps, panel.value)
        if all(math.isnan(v) for v in y):
            continue
        any_measured = True
        colour = COLOURS[index % len(COLOURS)]
        look: dict[str, Any] = {
            "color": colour,
            "linestyle": DASHES[index % len(DASHES)],
            "marker": MARKERS[index % len(MARKERS)],
            "markersize": 4.5,
            "markevery": max(1, len(x) // 8),
        }
        axis.plot(x, y, label=task, **look)
        if panel.spread:
            half = series(steps, panel.spread)[1]
            low = [a - b for a, b in zip(y, half, strict=True)]
            high = [a + b for a, b in zip(y, half, strict=True)]
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        if panel.upper:
            axis.plot(*series(steps, panel.upper), color=colour, linewidth=0.9)
    axis.set_title(panel.title)
    axis.set_ylabel(panel.hint)
    if panel.share:
        axis.set_ylim(-0.03, 1.03)
    if not any_measured:
        axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", color=INK)
