"""The table of docs/results.md, made from run folders: a row for each task of each run.

    python tools/results_table.py runs/laptop runs/laptop-1 [--experts 64] [--write docs/results.md]

Every figure is success where a task is judged by it, else the reward, over the run's fresh
episodes; what a run has not measured is left empty. `--experts` lets the scripted expert play that
many of them, through HUD. `--write` puts the table between the two marks in the file.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cua_lab.demonstrators.lab_experts import expert
from cua_lab.errors import LabError
from cua_lab.play.episode import Episode, play, play_slots
from cua_lab.play.scripted import ScriptedTransport
from cua_lab.play.worker import Plan
from cua_lab.recipes import parse_recipe
from cua_lab.records import TaskSummary
from cua_lab.run.stage_context import build_stage
from cua_lab.stats import Estimate, estimate
from cua_lab.viz.report_tasks import by_success
from cua_lab.viz.runfiles import Run, read_run

MARKS = ("<!-- results: made by tools/results_table.py -->", "<!-- end of results -->")
ABLATIONS = ("shuffled", "blank", "random", "blind")
HEAD = (
    *("recipe: task", "seed", "n", "after the warm-up", "after GRPO", "other screenshots", "blank"),
    *("random play", "best fixed actions", "expert", "screens read", "valid calls"),
)
Figures = Mapping[str, Estimate]
"""What experts reach, by variant."""


def rows(run: Run, experts: Figures | None = None) -> Iterator[tuple[str, ...]]:
    """One row for each task of a finished run, and one for each of its variants."""
    by_expert = experts or {}
    if run.summary is None:
        raise LabError(f"{run.path} has no summary.json: give runs that have ended")
    name, seed = run.summary.recipe or run.path.name, str(run.summary.seed)
    for task, found in run.summary.tasks.items():
        n = sum(e.task == task and e.phase == "eval_after" for e in run.episodes)
        variants = found.by_variant_after
        of_all = ", ".join(variants) if task in variants else task
        yield (
            f"`{name}`: {of_all}",
            seed,
            str(n),
            *(_shown(value) for value in _measured(task, found)),
            _shown(None if len(variants) > 1 else by_expert.get(task)),
            _share(found.screens_read_after),
            _share(found.valid_tool_calls_after),
        )
        if len(variants) > 1:
            yield from _variants(found, by_expert)


def _measured(task: str, found: TaskSummary) -> tuple[Estimate | None, ...]:
    succeeds = by_success(task)
    without: Mapping[str, Estimate] = found.ablations_success if succeeds else found.ablations
    return (
        found.success_before if succeeds else found.reward_before,
        found.success_after if succeeds else found.reward_after,
        *(without.get(name) for name in ABLATIONS),
    )


def _variants(found: TaskSummary, by_expert: Figures) -> Iterator[tuple[str, ...]]:
    for name, after in found.by_variant_after.items():
        covered = (found.by_variant_ablations.get(kind, {}).get(name) for kind in ABLATIONS)
        figures = (found.by_variant_before.get(name), after, *covered, by_expert.get(name))
        yield (f"of these: {name}", "", str(after.n), *map(_shown, figures), "", "")


def _shown(value: Estimate | None) -> str:
    if value is None:
        return ""
    error = "" if math.isnan(value.se) else f" ± {value.se:.2f}"
    return re.sub(r"\b0\.", ".", f"{value.mean:.2f}{error}")


def _share(value: Estimate | None) -> str:
    return "" if value is None else f"{100 * value.mean:.0f}%"


async def play_experts(run: Run, count: int) -> dict[str, Estimate]:
    """What the experts of the run's tasks reach on its first fresh episodes, by variant: success
    where the table has it, else the reward."""
    stages = yaml.safe_load(run.config)["stages"]  # what is above them says how, not what
    seed = run.summary.seed if run.summary else 0
    recipe = parse_recipe(yaml.safe_dump({"run": {"seed": seed}, "stages": stages}))
    played: dict[str, list[float]] = {}
    for stage in recipe.stages:
        setup = build_stage(recipe, stage)
        keys = stage.tool.max_keys_per_call

        async def one(plan: Plan, _: int, setup: Any = setup, keys: int = keys) -> Episode:
            player = expert(plan.task.id, plan.task.args, max_keys=keys)
            wire = ScriptedTransport(player)
            known = {"runtime": setup.runtime, "id": plan.id, "group": plan.group}
            return await play(plan.task, setup.config, wire, **known)

        plans = setup.fresh_plans("eval", count * len(setup.variants))
        for episode in await play_slots(plans, one, concurrency=16):
            value = episode.success if by_success(episode.task) else episode.reward
            played.setdefault(episode.task, []).append(float(value or 0))
    found = {name: estimate(values) for name, values in played.items()}
    return {name: value for name, value in found.items() if value is not None}


def table(runs: Sequence[Run], experts: Sequence[Figures] = ()) -> str:
    """In Markdown."""
    known = experts or [{}] * len(runs)
    found = (row for run, figures in zip(runs, known, strict=True) for row in rows(run, figures))
    lines = [HEAD, ("---",) * len(HEAD), *found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def placed(text: str, found: str) -> str:
    """`text` with the table between its marks."""
    before, mark, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise LabError(f"there is no place for the table: expected {MARKS[0]} and {MARKS[1]}")
    return f"{before}{MARKS[0]}\n{found}{MARKS[1]}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders that `cua-lab run` left")
    parser.add_argument("--experts", type=int, default=0, help="episodes that experts play")
    parser.add_argument("--write", type=Path, help="a Markdown file with the two marks")
    given = parser.parse_args()
    try:
        runs = [read_run(path) for path in given.runs]
        played = [asyncio.run(play_experts(run, given.experts)) for run in runs if given.experts]
        found = table(runs, played)
        if given.write is None:
            print(found, end="")
        else:
            text = placed(given.write.read_text(encoding="utf-8"), found)
            given.write.write_text(text, encoding="utf-8")
    except LabError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
