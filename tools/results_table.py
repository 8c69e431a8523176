"""The table of docs/results.md, made from run folders: a row for each task of each run.

    python tools/results_table.py runs/laptop runs/laptop-1 [--write docs/results.md]

Every figure is success where a task is judged by it, else the reward, over the run's fresh
episodes; what a run has not measured is left empty. `--write` puts the table between the two marks
in the file.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cua_lab.errors import LabError
from cua_lab.records import TaskSummary
from cua_lab.stats import Estimate
from cua_lab.viz.report_tasks import by_success
from cua_lab.viz.runfiles import Run, read_run

MARKS = ("<!-- results: made by tools/results_table.py -->", "<!-- end of results -->")
ABLATIONS = ("shuffled", "blank", "random", "blind")
HEAD = (
    *("recipe: task", "seed", "n", "after the warm-up", "after GRPO", "other screenshots", "blank"),
    *("random play", "best fixed actions", "screens read", "valid calls"),
)


def rows(run: Run) -> Iterator[tuple[str, ...]]:
    """One row for each task of a finished run, and one for each of its variants."""
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
            _share(found.screens_read_after),
            _share(found.valid_tool_calls_after),
        )
        if len(variants) > 1:
            yield from _variants(found)


def _measured(task: str, found: TaskSummary) -> tuple[Estimate | None, ...]:
    succeeds = by_success(task)
    without: Mapping[str, Estimate] = found.ablations_success if succeeds else found.ablations
    return (
        found.success_before if succeeds else found.reward_before,
        found.success_after if succeeds else found.reward_after,
        *(without.get(name) for name in ABLATIONS),
    )


def _variants(found: TaskSummary) -> Iterator[tuple[str, ...]]:
    for name, after in found.by_variant_after.items():
        covered = (found.by_variant_ablations.get(kind, {}).get(name) for kind in ABLATIONS)
        figures = (found.by_variant_before.get(name), after, *covered)
        yield (f"of these: {name}", "", str(after.n), *map(_shown, figures), "", "")


def _shown(value: Estimate | None) -> str:
    if value is None:
        return ""
    error = "" if math.isnan(value.se) else f" ± {value.se:.2f}"
    return re.sub(r"\b0\.", ".", f"{value.mean:.2f}{error}")


def _share(value: Estimate | None) -> str:
    return "" if value is None else f"{100 * value.mean:.0f}%"


def table(runs: Sequence[Run]) -> str:
    """In Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *(row for run in runs for row in rows(run))]
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
    parser.add_argument("--write", type=Path, help="a Markdown file with the two marks")
    given = parser.parse_args()
    try:
        found = table([read_run(path) for path in given.runs])
        if given.write is None:
            print(found, end="")
        else:
            text = placed(given.write.read_text(encoding="utf-8"), found)
            given.write.write_text(text, encoding="utf-8")
    except LabError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
