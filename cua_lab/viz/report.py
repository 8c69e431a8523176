"""`report.html`: a run on one page that opens offline, light or dark, from the run's folder alone.

Sections, in order: the result of each task at a glance; then for each task, those first that say
what they read, what was learnt, what the policy does (film strips), before and after, learning
curves and ablations; the health of training; what failed, by cause; the gate, where one stood; the
numbers of the machinery; one episode in the mask viewer, where the run left one; machine, versions,
recipe.

What is computed here is plain values; `static/report.html.jinja` writes the page. Invariant: every
figure is read from the folder and none is made up here; what the run did not measure says "not
measured".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.records import Summary, TaskSummary
from cua_lab.viz import page
from cua_lab.viz.report_failures import Failures, failures
from cua_lab.viz.report_gate import GateSection, gate_section
from cua_lab.viz.report_health import Health, health
from cua_lab.viz.report_numbers import Numbers, numbers, origin
from cua_lab.viz.report_parts import Cell, Table, number
from cua_lab.viz.report_tasks import TaskSection, by_success, task_section, task_summary
from cua_lab.viz.runfiles import Run, read_run


@dataclass(frozen=True, slots=True)
class Card:
    """A task at a glance."""

    task: str
    what: str
    """What the figures are of."""
    before: str
    after: Cell


@dataclass(frozen=True, slots=True)
class Head:
    """The top of the page."""

    recipe: str
    facts: tuple[str, ...]
    finished: bool
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page."""

    head: Head
    tasks: tuple[TaskSection, ...]
    health: Health
    failures: Failures | None
    gate: GateSection | None
    numbers: Numbers
    viewer: dict[str, Any] | None
    origin: tuple[Table, ...]
    config: str


def write_report(run: Run | str | Path, path: str | Path | None = None) -> Path:
    """Write the report of a run's folder, by default as `report.html` inside it."""
    run = run if isinstance(run, Run) else read_run(run)
    return page.write_page(path or run.path / "report.html", report_html(run))


def report_html(run: Run) -> str:
    """The whole page."""
    viewer = run.viewer is not None
    return page.page_of(
        "report.html.jinja",
        title=f"{run.path.name}: a policy learns to use a screen",
        style=page.asset("report.css") + (page.asset("viewer.css") if viewer else ""),
        script=page.viewer_script() if viewer else "",
        report=report_of(run),
    )


def report_of(run: Run) -> Report:
    """Every value of the page."""
    summary = run.summary or Summary()
    return Report(
        head=_head(run),
        tasks=tuple(task_section(run, task) for task in run.tasks),
        health=health(run),
        failures=failures(run),
        gate=gate_section(run),
        numbers=numbers(summary),
        viewer=run.viewer,
        origin=origin(summary),
        config=run.config,
    )


def _head(run: Run) -> Head:
    summary = run.summary or Summary()
    total, machine = number(summary.seconds.get("total"), "s", 0), summary.machine
    facts = [
        "" if summary.seed is None else f"seed {summary.seed}",
        f"{total} in all" if total else "",
        f"{machine['cores']} cores of {machine.get('cpu', 'a machine')}"
        if "cores" in machine
        else "",
        f"{number(summary.peak_rss_gib, 'GiB')} at most" if summary.peak_rss_gib else "",
    ]
    return Head(
        recipe=summary.recipe or run.path.name,
        facts=tuple(filter(None, facts)),
        finished=run.summary is not None,
        cards=tuple(_card(task, task_summary(run, task)) for task in run.tasks),
    )


def _card(task: str, result: TaskSummary) -> Card:
    if by_success(task):
        what = "inside the target" if task.startswith("targets") else "solved"
        before, after = result.success_before, result.success_after
    else:
        what, before, after = "reward", result.reward_before, result.reward_after
    return Card(
        task=task,
        what=what,
        before="?" if before is None else f"{before.mean:.2f}",
        after=None if after is None else f"{after.mean:.2f}",
    )
