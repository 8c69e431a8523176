"""`report.html`: a run on one page that opens offline, light or dark, from the run's folder alone.

Sections, in order: the result of each task at a glance; then for each task, those first that say
what they read, what was learnt, what the policy does (film strips), before and after, learning
curves and ablations; the health of training; the numbers of the machinery; one episode in the mask
viewer, where the run left one; machine, versions, recipe.

Invariant: every figure is read from the folder and none is made up here; what the run did not
measure says "not measured".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cua_lab.records import Step, Summary, TaskSummary
from cua_lab.viz import page
from cua_lab.viz.curves import PANELS, READS, Panel, series
from cua_lab.viz.report_parts import (
    MISSING,
    figure,
    ledger,
    nested,
    number,
    shown,
    strips,
    table,
)
from cua_lab.viz.runfiles import Run, read_run
from cua_lab.viz.svg import Bar, Line, bar_chart, line_chart

PROVES = ("Reward", "Success")
"""Panels that belong to a task's own section; the others show the health of training."""
MEMBER = "·"
"""Before the name of one of a task's variants."""
WARM_UP = "<b>Warm-up loss</b>: nats an assistant token"


def write_report(run: Run | str | Path, path: str | Path | None = None) -> Path:
    """Write the report of a run's folder, by default as `report.html` inside it."""
    run = run if isinstance(run, Run) else read_run(run)
    return page.write_page(path or run.path / "report.html", report_html(run))


def report_html(run: Run) -> str:
    """The whole page."""
    sections = [
        _head(run),
        *(_task(run, task) for task in run.tasks),
        _health(run),
        _numbers(run.summary or Summary()),
        _tokens(run),
        _origin(run),
    ]
    style = page.asset("report.css")
    if run.viewer is None:
        script = ""
    else:
        style += page.asset("viewer.css")
        script = page.viewer_script()
    body = "<main>" + "\n".join(filter(None, sections)) + "</main>"
    title = f"{run.path.name}: a policy learns to use a screen"
    return page.page(title=title, body=body, style=style, script=script)


def _summary(run: Run, task: str) -> TaskSummary:
    found = run.summary.tasks.get(task) if run.summary else None
    return found or TaskSummary()


def _head(run: Run) -> str:
    cards = "".join(_card(task, _summary(run, task)) for task in run.tasks)
    summary = run.summary or Summary()
    total, machine = summary.seconds.get("total"), summary.machine
    facts = [
        f"Recipe <b>{escape(summary.recipe or run.path.name)}</b>",
        "" if summary.seed is None else f"seed {summary.seed}",
        f"{number(total, 's', 0)} in all" if total is not None else "",
        escape(f"{machine['cores']} cores of {machine.get('cpu', 'a machine')}")
        if "cores" in machine
        else "",
        f"{number(summary.peak_rss_gib, 'GiB')} at most" if summary.peak_rss_gib else "",
    ]
    unfinished = "" if run.summary else "<p><b>The run has not ended: no summary yet.</b></p>"
    return (
        f"<h1>{escape(run.path.name)}: a policy learns to use a screen</h1>"
        f'<p class="lead">{", ".join(filter(None, facts))}.</p>{unfinished}'
        f'<div class="cards">{cards}</div>'
    )


def _by_success(task: str) -> bool:
    """Clicks are judged by whether they hit, pages and near wins by whether they are solved; other
    tasks by their reward."""
    return task.startswith(("targets", "miniwob", "2048-near-win", "todo"))


def _card(task: str, result: TaskSummary) -> str:
    if _by_success(task):
        what = "inside the target" if task.startswith("targets") else "solved"
        before, after = result.success_before, result.success_after
    else:
        what, before, after = "reward", result.reward_before, result.reward_after
    if after is None:
        big = MISSING
    else:
        start = "?" if before is None else f"{before.mean:.2f}"
        big = f"{start} → {after.mean:.2f} <small>{escape(what)}</small>"
    return (
        f'<div class="card"><b>{escape(task)}</b><div class="big">{big}</div>'
        "after the warm-up → after GRPO</div>"
    )


def _task(run: Run, task: str) -> str:
    result = _summary(run, task)
    learnt = f'<p class="learnt">{escape(result.learnt)}</p>' if result.learnt else ""
    panels = [panel for panel in PANELS if panel.title in PROVES]
    panels += [READS] if run.reads(task) else []
    return (
        f"<h2>{escape(task)}</h2>{learnt}"
        f"{_opening(run, task)}"
        f"<h3>Before and after GRPO</h3>{_before_after(result)}"
        f"<h3>Learning curves</h3>{_charts(run, panels, [task])}"
        f"<h3>Does it look? The trained policy with its eyes covered</h3>{_ablations(task, result)}"
        f"{_directions(result)}"
    )


def _opening(run: Run, task: str) -> str:
    """What it does, before any number: screen, thought, action, next screen."""
    how = ""
    if run.reads(task):
        how = (
            "<p>It says the screen before it acts: a digit for each cell in reading order (5 is the"
            " tile 2<sup>5</sup> = 32, 0 an empty cell), then what follows from it. A cell that it"
            " misread is marked, with what is there in brackets.</p>"
        )
    return f"<h3>What it does</h3>{how}{strips(run, task)}"


def _before_after(result: TaskSummary) -> str:
    rows = [
        [label, shown(getattr(result, f"{stem}_before")), shown(getattr(result, f"{stem}_after"))]
        for label, stem in (
            ("reward", "reward"),
            ("success", "success"),
            ("valid tool calls", "valid_tool_calls"),
            ("keys a turn", "keys_per_turn"),
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
    if not rows:
        return f"<p>{MISSING}</p>"
    note = "<p>Mean ± standard error over fresh episodes, sampled at T = 1.</p>"
    return table(["", "after the warm-up", "after GRPO"], rows) + note


def _ablations(task: str, result: TaskSummary) -> str:
    use_success = _by_success(task) and bool(result.ablations_success)
    covered = result.ablations_success if use_success else result.ablations
    trained = result.success_after if use_success else result.reward_after
    before = result.success_before if use_success else result.reward_before
    names = {
        "shuffled": "others' screens",
        "blank": "blank screens",
        "random": "random actions",
        "blind": "best fixed actions",
    }
    bars = [Bar("as trained", trained, 0)] if trained else []
    bars += [Bar(names.get(key, key), value, 1) for key, value in covered.items()]
    bars += [Bar("before GRPO", before, 2)] if before else []
    what = "success" if use_success else "reward"
    chart = bar_chart(bars, label=f"{what} as trained and with its eyes covered")
    rows = [
        ["as trained", shown(result.reward_after), shown(result.success_after)],
        *(
            [names.get(key, key), shown(value), shown(result.ablations_success.get(key))]
            for key, value in result.ablations.items()
        ),
    ]
    caption = f"<b>{what.capitalize()}</b>; the line on a bar is one standard error each way"
    return (
        f'<div class="covered"><div class="bars">{figure(chart, caption)}</div>'
        f"<div>{table(['screens', 'reward', 'success'], rows)}</div></div>"
    )


def _directions(result: TaskSummary) -> str:
    before, after = result.direction_shares_before, result.direction_shares_after
    if not before and not after:
        return ""
    names = list(dict.fromkeys([*(before or {}), *(after or {})]))
    rows = [
        [name, *(f"{100 * s[name]:.0f} %" if s and name in s else MISSING for s in (before, after))]
        for name in names
    ]
    return "<h3>Which keys</h3>" + table(["share of keys", "before", "after"], rows)


def _charts(run: Run, panels: Sequence[Panel], tasks: Sequence[str], first: str = "") -> str:
    figures = [first]
    for panel in panels:
        lines = [line for task in tasks for line in _lines(run, panel, task)]
        scale = (0.0, 1.0) if panel.share else None
        chart = line_chart(lines, label=panel.title, x_label="GRPO step", y_range=scale)
        figures.append(figure(chart, f"<b>{panel.title}</b>: {panel.hint}"))
    return f'<div class="charts">{"".join(figures)}</div>'


def _lines(run: Run, panel: Panel, task: str) -> Iterable[Line]:
    steps, look = run.grpo(task), run.tasks.index(task) % 3
    x, y = series(steps, panel.value)
    half = series(steps, panel.spread)[1] if panel.spread else None
    yield Line(task, x, y, half=half, look=look)
    if panel.upper:
        yield Line(task, *series(steps, panel.upper), look=look, thin=True)


def _health(run: Run) -> str:
    panels = [panel for panel in PANELS if panel.title not in PROVES]
    warm = [
        Line(task, *series(steps, lambda s: s.loss), look=index % 3)
        for index, task in enumerate(run.tasks)
        if (steps := _sft(run, task))
    ]
    sft = line_chart(warm, label="warm-up loss", x_label="warm-up step")
    key = "".join(
        f'<li><svg viewBox="0 0 34 12" aria-hidden="true"><path class="line look{i % 3}"'
        f' d="M1 6H33"/></svg>{escape(task)}</li>'
        for i, task in enumerate(run.tasks)
    )
    return (
        f'<h2>The health of training</h2><ul class="key">{key}</ul>'
        f"{_charts(run, panels, run.tasks, figure(sft, WARM_UP))}"
    )


def _sft(run: Run, task: str) -> list[Step]:
    return [step for step in run.steps if step.task == task and step.phase == "sft"]


def _numbers(summary: Summary) -> str:
    exact = [
        ["largest gap in log-probability, engine against trainer",
         number(summary.logprob_gap_max, exponent=True)],
        ["largest |ratio − 1| at the first update of a batch",
         number(summary.first_ratio_max_error, exponent=True)],
    ]  # fmt: skip
    return (
        f"<h2>The numbers</h2>{table(['exactness', ''], exact)}"
        f'<div class="two"><div>{_seconds(summary)}</div>'
        f"<div>{nested('tokens a second', summary.tokens_per_s, 0)}"
        f"{nested('episodes', summary.episodes)}</div>"
        f"<div>{ledger(summary.tokens)}</div>"
        f"<div>{nested('divergences', summary.divergences)}</div></div>"
    )


def _seconds(summary: Summary) -> str:
    """Shares of the work: parts of two processes overlap, and of the wall time they would be more
    than all."""
    parts = {name: value for name, value in summary.seconds.items() if name != "total"}
    work, total = sum(parts.values()), summary.seconds.get("total")
    rows = [
        [name, number(value, "s", 1), f"{100 * value / work:.0f} %" if work else MISSING]
        for name, value in parts.items()
    ]
    if total is not None:
        beside = ": parts ran side by side" if work > total * 1.01 else ""
        rows.append([f"wall time{beside}", number(total, "s", 1), ""])
    return table(["seconds per part", "", "share of the work"], rows) if rows else ""


def _tokens(run: Run) -> str:
    if run.viewer is None:
        return ""
    return (
        "<h2>One episode, token by token</h2><p>Who put each token there, and which of them"
        " the policy is trained on.</p>" + page.viewer_block("viewer-data", run.viewer)
    )


def _origin(run: Run) -> str:
    summary = run.summary or Summary()

    def rows(facts: Mapping[str, Any]) -> list[list[str]]:
        return [[name, escape(str(value))] for name, value in facts.items()]

    tables = [table(["machine", ""], rows(summary.machine))] if summary.machine else []
    tables += [table(["versions", ""], rows(summary.versions))] if summary.versions else []
    config = f"<details><summary>config.yaml</summary><pre>{escape(run.config)}</pre></details>"
    return (
        "<h2>Machine, versions, recipe</h2>"
        f'<div class="two">{"".join(f"<div>{t}</div>" for t in tables)}</div>'
        + (config if run.config else "")
    )
