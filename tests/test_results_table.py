"""The table of results is made from run folders."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons import finished_run
from cua_lab.records import Summary, TaskSummary
from cua_lab.stats import Estimate
from cua_lab.viz.runfiles import Run, read_run
from tools.results_table import MARKS, placed, play_experts, table

PAGE = f"# Before\n\n{MARKS[0]}\nold\n{MARKS[1]}\n\nAfter\n"


def game() -> Run:
    return read_run(finished_run.FOLDER / "2048-score")


def test_the_table_has_the_runs_own_figures() -> None:
    run = game()
    assert run.summary is not None
    reward = run.summary.tasks["2048-score"].reward_after
    assert reward is not None
    row = table([run]).splitlines()[2]
    assert f" | {reward.mean:.2f}".replace("0.", ".") in row
    assert row.startswith("| `2048-score`: 2048-score | 0 | 96 |")
    assert {line.count("|") for line in table([run]).splitlines()} == {13}


def test_each_template_of_one_policy_has_a_row_with_its_own_ablations_and_expert() -> None:
    by = {"a": Estimate(0.25, 0.01, 4), "b": Estimate(0.75, 0.02, 4)}
    found = TaskSummary(
        by_variant_before=by, by_variant_after=by, by_variant_ablations={"blank": by}
    )
    summary = Summary(recipe="both", seed=3, tasks={"a": found})
    run = replace(game(), summary=summary, episodes=())
    lines = table([run], [{"b": Estimate(1.0, 0.0, 9)}]).splitlines()[2:]
    assert lines[0].startswith("| `both`: a, b | 3 |")
    assert lines[2] == (
        "| of these: b |  | 4 | .75 ± .02 | .75 ± .02 |  | .75 ± .02 |  |  | 1.00 ± .00 |  |  |"
    )


def test_experts_play_the_starts_of_the_run() -> None:
    run = read_run(finished_run.FOLDER / "laptop")
    found = asyncio.run(play_experts(run, 2))
    assert {name: value.mean for name, value in found.items()} == {
        "targets-click": 1.0,
        "2048-near-win": 1.0,
    }


def test_it_goes_between_the_marks_and_nothing_else_changes() -> None:
    found = table([game()])
    text = placed(PAGE, found)
    assert text == PAGE.replace("old\n", found)
    assert placed(text, found) == text


def test_a_page_without_the_marks_and_a_run_that_goes_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no place for the table"):
        placed("nothing\n", "table\n")
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(LabError, match="runs that have ended"):
        table([read_run(tmp_path)])
