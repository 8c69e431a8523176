"""`cua-lab show`: single episodes of a run, on one page that opens offline.

    Run ──choose──▶ rows ──show_page──▶ HTML: screenshots, thoughts, calls; tokens where recorded

Invariant: which episodes are shown is a function of the run's records; what was not kept (the
screenshots of most episodes, the words of packed ones) is said to be missing and never invented.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cua_lab.errors import LabError
from cua_lab.records import EpisodeRow, TurnRow
from cua_lab.viz import page
from cua_lab.viz.report_strips import Strip, episode_strip, outcome
from cua_lab.viz.runfiles import Run

MOST = 24
"""Episodes on a page."""
LAST_PHASES = ("eval_after", "grpo", "eval_before")
"""Where to look for the best: the trained policy first."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One episode as the page has it."""

    title: str
    error: str | None
    strip: Strip | None
    turns: tuple[tuple[str, str, str], ...]
    """(thought, call, remark) of each."""


def choose(
    run: Run, *, episode: str | None = None, failures: bool = False, best: bool = False
) -> list[EpisodeRow]:
    """The episodes that are asked for; raises `LabError` where there are none."""
    if episode is not None:
        return _named(run, episode)
    if failures:
        chosen = [e for e in run.episodes if e.status == "failed"]
        missed = [e for e in run.episodes if e.phase == "eval_after" and e.success is False]
        return _some(run, [*chosen, *sorted(missed, key=lambda e: not e.pictured)], "failed")
    if best:
        return _some(run, _best(run), "has a reward")
    ends = [e for e in run.episodes if e.pictured and e.phase in ("eval_before", "eval_after")]
    return _some(run, sorted(ends, key=lambda e: (e.task, e.episode or "", e.phase)[:2]), "is kept")


def show_page(run: Run, rows: Sequence[EpisodeRow], title: str) -> str:
    """The page of these episodes; the viewer comes first where it holds one of them."""
    names = {row.episode for row in rows}
    members = run.viewer["members"] if run.viewer else []
    viewer = run.viewer if any(member["name"] in names for member in members) else None
    return page.page_of(
        "show.html.jinja",
        title=title,
        style=page.asset("report.css") + page.asset("viewer.css"),
        script=page.viewer_script() if viewer else "",
        viewer=viewer,
        episodes=[_shown(run, row) for row in rows[:MOST]],
        more=max(0, len(rows) - MOST),
        run=str(run.path.name),
    )


def _named(run: Run, name: str) -> list[EpisodeRow]:
    found = [e for e in run.episodes if e.episode == name]
    if not found:
        examples = ", ".join(list(dict.fromkeys(e.episode or "?" for e in run.episodes))[:3])
        raise LabError(
            f"{run.path} has no episode {name!r}; it has {len(run.episodes)}, such as"
            f" {examples or 'none yet'}"
        )
    return found


def _best(run: Run) -> list[EpisodeRow]:
    """Of each task the pictured one of the highest reward, and the highest of all."""
    chosen: list[EpisodeRow] = []
    for task in run.tasks:
        for phase in LAST_PHASES:
            graded = [
                e for e in run.episodes
                if e.task == task and e.phase == phase and e.reward is not None
            ]  # fmt: skip
            if graded:
                order = sorted(graded, key=lambda e: (-(e.reward or 0.0), not e.pictured))
                chosen += order[:3]
                break
    return chosen


def _some(run: Run, rows: list[EpisodeRow], what: str) -> list[EpisodeRow]:
    if not rows:
        raise LabError(f"no episode of {run.path} {what}; it has {len(run.episodes)} in all")
    return rows


def _shown(run: Run, row: EpisodeRow) -> Shown:
    phase = row.phase if row.step is None else f"{row.phase}, step {row.step}"
    return Shown(
        title=f"{row.episode or 'episode'}: {row.task}, {phase}; {row.status or '?'}, "
        f"{outcome(row)}",
        error=row.error,
        strip=episode_strip(run, row, "What it saw and did") if row.pictured else None,
        turns=tuple(_turn(turn) for turn in row.turns),
    )


def _turn(turn: TurnRow) -> tuple[str, str, str]:
    called = {**turn.action, "keys": list(turn.keys)} if turn.keys else turn.action
    call = json.dumps(called, ensure_ascii=False) if called else turn.text
    return turn.thought, call, "" if turn.valid else "not executed"
