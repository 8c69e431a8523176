"""The learning curves of the report, and those of them that say how training went.

Invariant: a task has one colour, dash and marker on the whole page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cua_lab.records import Step
from cua_lab.viz.curves import PANELS, Panel, series
from cua_lab.viz.report_parts import Captioned
from cua_lab.viz.runfiles import Run
from cua_lab.viz.svg import Line, line_chart

PROVES = ("Reward", "Success")
"""Panels that belong to a task's own section; the others show the health of training."""


@dataclass(frozen=True, slots=True)
class Health:
    """The curves that say how training went, with the key of their lines."""

    key: tuple[tuple[int, str], ...]
    """(look, task) of each."""
    curves: tuple[Captioned, ...]


def health(run: Run) -> Health:
    """The warm-up's loss, then the panels of GRPO with all tasks in each."""
    panels = [panel for panel in PANELS if panel.title not in PROVES]
    warm = [
        Line(task, *series(steps, lambda s: s.loss), look=index % 3)
        for index, task in enumerate(run.tasks)
        if (steps := _sft(run, task))
    ]
    sft = line_chart(warm, label="warm-up loss", x_label="warm-up step")
    return Health(
        key=tuple((index % 3, task) for index, task in enumerate(run.tasks)),
        curves=(
            Captioned("Warm-up loss", "nats per assistant token", sft),
            *captioned_curves(run, panels, run.tasks),
        ),
    )


def _sft(run: Run, task: str) -> list[Step]:
    return [step for step in run.steps if step.task == task and step.phase == "sft"]


def captioned_curves(
    run: Run, panels: Sequence[Panel], tasks: Sequence[str]
) -> Iterable[Captioned]:
    """A chart for each panel, with a line for each task."""
    for panel in panels:
        lines = [line for task in tasks for line in _lines(run, panel, task)]
        scale = (0.0, 1.0) if panel.share else None
        chart = line_chart(lines, label=panel.title, x_label="GRPO step", y_range=scale)
        yield Captioned(panel.title, panel.hint, chart)


def _lines(run: Run, panel: Panel, task: str) -> Iterable[Line]:
    steps, look = run.grpo(task), run.tasks.index(task) % 3
    x, y = series(steps, panel.value)
    half = series(steps, panel.spread)[1] if panel.spread else None
    yield Line(task, x, y, half=half, look=look)
    if panel.upper:
        yield Line(task, *series(steps, panel.upper), look=look, thin=True)
