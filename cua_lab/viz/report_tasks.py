"""A task's section of the report: what was learnt, what it does, before and after, does it look.

Invariant: a task is judged by the same figure everywhere, its success or its reward (`by_success`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cua_lab.records import TaskSummary
from cua_lab.viz.curves import PANELS, READS
from cua_lab.viz.report_health import PROVES, captioned_curves
from cua_lab.viz.report_parts import Captioned, Table, shown, table
from cua_lab.viz.report_strips import Strip, strips, told
from cua_lab.viz.runfiles import Run
from cua_lab.viz.svg import Bar, bar_chart

MEMBER = "·"
"""Before the name of one of a task's variants."""


@dataclass(frozen=True, slots=True)
class TaskSection:
    """What a run shows of one task."""

    task: str
    learnt: str
    reads: bool
    """Whether the policy says what is on the screen before it acts."""
    told: str
    strips: tuple[Strip, ...]
    before_after: Table
    curves: tuple[Captioned, ...]
    covered: Captioned
    """The trained policy with its eyes covered."""
    ablations: Table
    directions: Table | None


def task_section(run: Run, task: str) -> TaskSection:
    """Every value of the section."""
    result = task_summary(run, task)
    panels = [panel for panel in PANELS if panel.title in PROVES]
    panels += [READS] if run.reads(task) else []
    return TaskSection(
        task=task,
        learnt=result.learnt or "",
        reads=run.reads(task),
        told=told(run, task),
        strips=tuple(strips(run, task)),
        before_after=_before_after(result),
        curves=tuple(captioned_curves(run, panels, [task])),
        covered=_covered(task, result),
        ablations=_ablations(result),
        directions=_directions(result),
    )


def _before_after(result: TaskSummary) -> Table:
    rows = [
        [label, shown(getattr(result, f"{stem}_before")), shown(getattr(result, f"{stem}_after"))]
        for label, stem in (
            ("reward", "reward"),
            ("success", "success"),
            ("valid tool calls", "valid_tool_calls"),
            ("keys per turn", "keys_per_turn"),
            ("cells read right", "cells_read"),
            ("screens read without a mistake", "screens_read"),
        )
        if getattr(result, f"{stem}_before") or getattr(result, f"{stem}_after")
    ]
    before, after = result.by_variant_before, result.by_variant_after
    rows += [
        [f"{MEMBER} {name}", shown(before.get(name)), shown(after.get(name))]
        for name in dict.fromkeys([*before, *after])
    ]
    return table(["", "after the warm-up", "after GRPO"], rows)


COVERED = {
    "shuffled": "others' screens",
    "blank": "blank screens",
    "random": "random actions",
    "blind": "best fixed actions",
}
"""Ablations in words."""


def _covered(task: str, result: TaskSummary) -> Captioned:
    use_success = by_success(task) and bool(result.ablations_success)
    covered = result.ablations_success if use_success else result.ablations
    trained = result.success_after if use_success else result.reward_after
    before = result.success_before if use_success else result.reward_before
    bars = [Bar("as trained", trained, 0)] if trained else []
    bars += [Bar(COVERED.get(key, key), value, 1) for key, value in covered.items()]
    bars += [Bar("before GRPO", before, 2)] if before else []
    what = "success" if use_success else "reward"
    return Captioned(
        title=what.capitalize(),
        hint="the line on a bar is one standard error each way",
        chart=bar_chart(bars, label=f"{what} as trained and with its eyes covered"),
    )


def _ablations(result: TaskSummary) -> Table:
    rows = [
        ["as trained", shown(result.reward_after), shown(result.success_after)],
        *(
            [COVERED.get(key, key), shown(value), shown(result.ablations_success.get(key))]
            for key, value in result.ablations.items()
        ),
        *(
            [f"{MEMBER} {name}, {COVERED.get(key, key)}", None, shown(value)]
            for key, found in result.by_variant_ablations.items()
            for name, value in found.items()
        ),
    ]
    return table(["screens", "reward", "success"], rows)


def _directions(result: TaskSummary) -> Table | None:
    before, after = result.direction_shares_before, result.direction_shares_after
    if not before and not after:
        return None
    names = list(dict.fromkeys([*(before or {}), *(after or {})]))
    rows = [
        [name, *(f"{100 * s[name]:.0f} %" if s and name in s else None for s in (before, after))]
        for name in names
    ]
    return table(["share of keys", "before", "after"], rows)


def by_success(task: str) -> bool:
    """Clicks are judged by whether they hit, pages and near wins by whether they are solved; other
    tasks by their reward."""
    return task.startswith(("targets", "miniwob", "2048-near-win", "todo"))


def task_summary(run: Run, task: str) -> TaskSummary:
    """A task's figures; empty while the run goes on."""
    found = run.summary.tasks.get(task) if run.summary else None
    return found or TaskSummary()
