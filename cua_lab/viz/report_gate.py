"""The gate in a run's report: risky calls proposed, confirmed, rejected and denied, step by step.

Invariant: a run without a gate has no such section; a step that was not measured leaves a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from cua_lab.records import Step
from cua_lab.viz.curves import Panel
from cua_lab.viz.report_health import captioned_curves
from cua_lab.viz.report_parts import Captioned, Table, number, table
from cua_lab.viz.runfiles import Run

PANELS = (
    Panel(
        "Risky calls proposed",
        "calls that the policy file does not simply allow; thin: rejected or denied",
        lambda step: step.risky_proposed,
        upper=lambda step: _refused(step),
    ),
    Panel("Penalty", "off the mean reward of a step", lambda step: step.penalty_mean),
)


@dataclass(frozen=True, slots=True)
class GateSection:
    """What stood at the gate."""

    curves: tuple[Captioned, ...]
    totals: Table
    steps: Table
    """One row a step; long, so the page folds it."""


def gate_section(run: Run) -> GateSection | None:
    """The section, `None` where no step had a gate."""
    gated = [step for step in run.steps if step.risky_proposed is not None]
    if not gated:
        return None
    tasks = [task for task in run.tasks if any(step.task == task for step in gated)]
    return GateSection(
        curves=tuple(captioned_curves(run, PANELS, tasks)),
        totals=table(_HEAD, [[task, *_sums(gated, task)] for task in tasks]),
        steps=table(_HEAD, [[f"{step.task}, step {step.step}", *_cells([step])] for step in gated]),
    )


_HEAD = ("", "proposed", "confirmed", "rejected", "denied", "penalty")


def _sums(steps: list[Step], task: str) -> list[str | None]:
    return _cells([step for step in steps if step.task == task])


def _cells(steps: list[Step]) -> list[str | None]:
    counts = (
        sum(step.risky_proposed or 0 for step in steps),
        sum(step.risky_confirmed or 0 for step in steps),
        sum(step.risky_rejected or 0 for step in steps),
        sum(step.risky_denied or 0 for step in steps),
    )
    penalties = [step.penalty_mean for step in steps if step.penalty_mean is not None]
    mean = sum(penalties) / len(penalties) if penalties else None
    return [*(str(count) for count in counts), number(mean, digits=3)]


def _refused(step: Step) -> float | None:
    if step.risky_rejected is None or step.risky_denied is None:
        return None
    return step.risky_rejected + step.risky_denied
