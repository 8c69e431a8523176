"""Where a step's minutes go as desktops are added, drawn from the planner's simulation.

Invariant: every number drawn comes from `cua_lab.miles.capacity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.miles.capacity import Plan, Speeds, plan, workload_of
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cua_lab.miles.recipe import MilesRecipe

HATCHES = ("", "//", "..", "xx")


def plans(
    recipe: MilesRecipe, speeds: Speeds, desktops: Sequence[int]
) -> Iterator[tuple[int, Plan]]:
    """A step for each number of desktops, with at least as many episodes as desktops."""
    gpus = recipe.cluster.nodes * recipe.cluster.gpus
    for count in desktops:
        work = workload_of(recipe, episodes=max(count, recipe.train.episodes))
        yield count, plan(work, speeds, sandboxes=count, gpus=gpus)


def minutes_of(step: Plan) -> dict[str, float]:
    """A step's minutes by what it waits for; they add up to the step."""
    busy = step.rollout.seconds * step.rollout.engine_busy
    parts = {
        "sandboxes": step.rollout.seconds - busy,
        "engines": busy,
        "pixels": step.transfer_s,
        "training": step.train_s,
    }
    return {name: seconds / 60 for name, seconds in parts.items()}


def plan_figure(panels: Mapping[str, Mapping[int, Plan]]) -> Figure:
    """A panel for each assumption, a bar for each number of desktops: shares of the step."""
    with paper():
        figure = Picture(figsize=(10.5, 3.2), layout="constrained")
        for axes, (name, steps) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            axes.set_title(name)
            _bars(axes, steps)
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=4)
    figure.alt = "Shares of a step's minutes. " + " ".join(
        f"{name}: {', '.join(_said(count, step) for count, step in steps.items())}."
        for name, steps in panels.items()
    )
    return figure


def _bars(axes: Axes, steps: Mapping[int, Plan]) -> None:
    rows = [f"{count:,}" for count in steps]
    parts = [minutes_of(step) for step in steps.values()]
    left = [0.0] * len(rows)
    for k, part in enumerate(parts[0]):
        shares = [minutes[part] / sum(minutes.values()) for minutes in parts]
        axes.barh(
            rows, shares, left=left, height=0.6, color=COLOURS[k], hatch=HATCHES[k],
            edgecolor="#ffffff", linewidth=0.8, label=part,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, shares, strict=True)]
    for row, step in enumerate(steps.values()):
        axes.text(1.02, row, f"{step.step_s / 60:,.0f} min", va="center", fontsize=9)
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.5, 1])
    axes.set_xlabel("share of the step")
    axes.set_ylabel("desktops")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _said(count: int, step: Plan) -> str:
    minutes = minutes_of(step)
    most = max(minutes, key=lambda name: minutes[name])
    return f"{count:,} desktops {step.step_s / 60:,.0f} minutes, most of them {most}"
