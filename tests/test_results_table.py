"""The table of results is made from run folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons import finished_run
from cua_lab.viz.runfiles import Run, read_run
from tools.results_table import MARKS, placed, table

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
    assert {line.count("|") for line in table([run]).splitlines()} == {12}


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
