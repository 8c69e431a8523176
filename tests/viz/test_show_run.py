"""`cua-lab show`: which episodes a page has, and that it invents nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.lessons.finished_run import finished_run
from cua_lab.viz.show_run import choose, show_page
from tests.cli.support_cli import cua_lab


@pytest.fixture(scope="module")
def run():
    return finished_run("laptop", runs="absent")


def test_without_a_wish_the_pictured_ones_stand_in_pairs(run) -> None:
    rows = choose(run)
    assert rows
    assert all(row.pictured for row in rows)
    first, second = rows[:2]
    assert first.episode == second.episode
    assert {first.phase, second.phase} == {"eval_before", "eval_after"}


def test_the_best_are_the_trained_policys_highest_rewards(run) -> None:
    rows = choose(run, best=True)
    assert {row.task for row in rows} == set(run.tasks)
    for task in run.tasks:
        highest = max(e.reward for e in run.episodes if e.task == task and e.phase == "eval_after")
        assert next(row.reward for row in rows if row.task == task) == highest


def test_failed_episodes_come_before_missed_ones(run) -> None:
    broken = replace(run.episodes[-1], status="failed", reward=None, error="<b>dead</b>")
    rows = choose(replace(run, episodes=(*run.episodes, broken)), failures=True)
    assert rows[0] is broken
    assert all(row.success is False for row in rows[1:])
    page = show_page(run, rows[:1], "Failures")
    assert "&lt;b&gt;dead&lt;/b&gt;" in page
    assert "no reward" in page


def test_an_episode_of_the_viewer_is_shown_token_by_token(run) -> None:
    name = run.viewer["members"][0]["name"]
    row = replace(run.episodes[0], episode=name)
    assert "Token by token" in show_page(run, [row], "x")
    assert "Token by token" not in show_page(run, [replace(row, episode="another")], "x")


def test_an_unknown_episode_is_refused_with_examples(run) -> None:
    with pytest.raises(LabError, match=r"no episode 'nope'; it has \d+, such as "):
        choose(run, episode="nope")


def test_the_command_writes_one_page(run, tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "page.html"
    ended = cua_lab(monkeypatch, capsys, "show", str(run.path), "--best", "--out", str(out))
    assert ended.status == 0, ended.err
    text = out.read_text()
    assert "default-src 'none'" in text
    assert text.count("<h2>") >= len(run.tasks)
