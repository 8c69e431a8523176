"""The run folder read back, and the page made of it."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cua_lab.cli import app
from cua_lab.cli.report_command import report as _  # noqa: F401 - registers the command
from cua_lab.errors import LabError
from cua_lab.viz import read_run
from cua_lab.viz.report import report_html, write_report
from cua_lab.viz.svg import Line, bar_chart, line_chart, ticks
from tests.viz.episodes import board
from tests.viz.runs import CLICK, GAME, write_run

NEAR = "2048-near-win"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "laptop")


@pytest.fixture(scope="module")
def html(folder):
    return report_html(read_run(folder))


def test_failures_are_counted_by_cause_and_the_first_of_each_is_a_film_strip(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    assert "What failed" not in report_html(run), "nothing did"
    pictured, other = (e for e in run.episodes if e.task == GAME and e.pictured)
    dead = {"reward": None, "success": None, "status": "failed"}
    failed = [
        replace(pictured, **dead, error="no frame within 10 s", episode="a", phase="grpo"),
        replace(other, **dead, error="no frame within 3 s", episode="b", turns=(), phase="grpo"),
        replace(other, **dead, error="<b>the grader</b> died", episode="c", turns=()),
    ]
    html = report_html(replace(run, episodes=run.episodes + tuple(failed)))
    section = html[html.index("<h2>What failed</h2>") : html.index("<h2>The numbers</h2>")]
    assert f"3 of {len(run.episodes) + 3} episodes on record failed" in section
    rows = re.findall(r'scope="row">(.*?)</th><td class="n">(\d+)</td>', section)
    assert rows == [("no frame within 10 s", "2"), ("&lt;b&gt;the grader&lt;/b&gt; died", "1")]
    assert "First of: no frame within 10 s (a)" in section
    assert section.count("<li>") == len(pictured.turns), "the strip of the first, and no other"
    assert "First of: &lt;b&gt;the grader&lt;/b&gt; died: " in section, "it left no screenshot"


def test_the_task_that_proves_vision_comes_first(html):
    assert html.index(f"<h2>{CLICK}</h2>") < html.index(f"<h2>{GAME}</h2>")


def test_every_figure_of_the_summary_is_on_the_page(html):
    for figure in (
        "0.840 ± 0.023 (n = 256)",
        "0.060 ± 0.015 (n = 256)",
        "2.9e-06",
        "1.2e-06",
        "412,345",
        "324.0 s",
        "17,000",
        "1.9 GiB",
        "15.800",
        "48 %",
        "5,120",
        "transformers",
    ):
        assert figure in html, figure


def test_clicks_are_judged_by_hits_and_2048_by_its_reward(html):
    """A score task may have a yes or no as well: it says little while nobody reaches it."""
    cards = re.findall(r'class="big">([\d.]+ → [\d.]+) <small>(.*?)</small>', html)
    assert cards == [("0.53 → 0.84", "inside the target"), ("0.04 → 0.33", "reward")]


def reading_run(folder: Path, *, misread: bool = True) -> Path:
    """Two starts of a policy that says the board; the first was missed before and hit after."""
    folder.mkdir()
    (folder / "frames").mkdir()
    board(0).save(folder / "frames/one.png")
    step = {"task": NEAR, "phase": "grpo", "step": 1, "screens_read": 0.9, "reward_mean": 0.5}
    click = {"task": CLICK, "phase": "grpo", "step": 1, "reward_mean": 0.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (click, step)))
    rows = [
        {
            "task": NEAR,
            "phase": phase,
            "episode": f"near-{n}",
            "reward": float(hit),
            "success": hit,
            "end": "frames/one.png",
            "turns": [
                {
                    "action": {"action": "press", "keys": [f"key{n}"]},
                    "valid": True,
                    "thought": f"00{9 if misread else 5}1/0000 11 12 row",
                    "reading": "0051/0000",
                    "frame": "frames/one.png",
                }
            ]
            * 2,
        }
        for phase, hits in (("eval_before", (True, False)), ("eval_after", (True, True)))
        for n, hit in enumerate(hits)
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_policy_that_reads_opens_the_report_with_what_it_said(tmp_path):
    html = report_html(read_run(reading_run(tmp_path / "run")))
    assert html.index(f"<h2>{NEAR}</h2>") < html.index(f"<h2>{CLICK}</h2>")
    strips = html.split(f"<h2>{NEAR}</h2>")[1]
    assert strips.index("It says the screen") < strips.index("Before and after GRPO")
    assert "00<mark>9<small>(5)</small></mark>1<br>0000<br>11 12 row" in strips
    assert strips.count("and then<br>") == 4, "the screen after the last key"


def test_a_transcript_without_a_mistake_bears_no_mark(tmp_path):
    html = report_html(read_run(reading_run(tmp_path / "run", misread=False)))
    assert "<mark>" not in html
    assert "0051<br>0000<br>11 12 row" in html


def test_strips_show_first_what_was_missed_before_and_hit_after_and_count_all_kinds(tmp_path):
    html = report_html(read_run(reading_run(tmp_path / "run")))
    assert (
        "Of 2 starts 1 were missed before GRPO and hit after, 0 the other way round, 1 hit" in html
    )
    assert html.index("press key1") < html.index("press key0")


def test_parts_that_ran_side_by_side_are_shares_of_the_work(folder, tmp_path):
    """The next stage's warm-up ran beside the first stage: its seconds came to 139% of the wall."""
    run = read_run(folder)
    seconds = {"sft": 100.0, "train": 100.0, "total": 144.0}
    html = report_html(replace(run, summary=replace(run.summary, seconds=seconds)))
    assert html.count("50 %") == 2
    assert "wall time: parts ran side by side" in html
    assert "69 %" not in html


def test_steps_on_the_axis_are_whole():
    chart = line_chart([Line("a", [1, 2, 3], [0, 1, 2])], label="a", x_label="step")
    assert [tick.text for tick in chart.x_ticks] == ["1", "2", "3"]


def test_the_account_of_tokens_is_shown_to_close(html):
    assert "trained + masked + resynced + dropped = sampled" in html


def test_the_page_is_self_contained_under_a_strict_policy(html):
    assert "default-src 'none'" in html
    assert " style=" not in html
    urls = re.findall(r"https?://[^\"'<\s]+", html)
    assert set(urls) <= {"http://www.w3.org/2000/svg"}
    assert len(re.findall(r'src="data:image/png;base64,', html)) == 16  # 2 x (4 + 4) frames


def test_the_page_is_the_same_every_time(folder, html):
    assert report_html(read_run(folder)) == html


def test_an_empty_beginning_of_a_run_says_what_is_missing(tmp_path):
    """Missing is not zero: nothing but one step was measured."""
    (tmp_path / "metrics.jsonl").write_text(
        json.dumps({"task": CLICK, "phase": "grpo", "step": 0, "reward_mean": 0.5}) + "\n"
    )
    html = report_html(read_run(tmp_path))
    assert "The run has not ended" in html
    assert html.count("not measured") > 10
    assert "0.000" not in html
    assert '<script type="module">' not in html


HOSTILE = "<img src=x onerror=alert(1)>\"'&</script>"


def hostile_run(path: Path) -> Path:
    """A run in which every text that a run can bring is markup."""
    folder = write_run(path / "run<b>")
    summary = json.loads((folder / "summary.json").read_text())
    summary["tasks"][CLICK] |= {
        "learnt": HOSTILE,
        "by_variant_before": {HOSTILE: 0.5},
        "ablations": {HOSTILE: 0.5},
        "ablations_success": {HOSTILE: 0.5},
        "direction_shares_before": {HOSTILE: 0.5},
    }
    summary["tasks"]["<i>task"] = summary["tasks"].pop(GAME)
    summary |= {"recipe": HOSTILE, "machine": {"cores": HOSTILE, "cpu": HOSTILE}}
    summary["versions"] = {HOSTILE: HOSTILE}
    for table in ("seconds", "tokens", "episodes", "divergences", "tokens_per_s"):
        summary[table][HOSTILE] = 1
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.yaml").write_text(f"name: {HOSTILE}\n")
    _rewrite(folder / "metrics.jsonl", lambda row: row | {"screens_read": 0.5})
    _rewrite(folder / "episodes.jsonl", _hostile_episode)
    return folder


def _hostile_episode(row):
    said = {"thought": HOSTILE, "reading": "X" * len(HOSTILE)}
    turns = [turn | said | {"keys": [HOSTILE], "action": {}} for turn in row["turns"]]
    if row["task"] == CLICK:
        turns = [turn | {"keys": [], "action": {"action": HOSTILE}} for turn in turns]
    return row | {"turns": turns}


def _rewrite(path: Path, change) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows))


def test_text_of_a_run_is_never_markup(tmp_path):
    """Names, thoughts, keys, actions, table rows, versions, the recipe's text."""
    html = report_html(read_run(hostile_run(tmp_path)))
    body = html.split("<body>")[1]
    assert "<img src=x" not in body
    assert "<i>task" not in body
    assert "run<b>" not in body
    tags = Tags()
    tags.feed(html)
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert tags.scripts == 2, "the viewer's data and its program"
    assert html.count("&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;&lt;/script&gt;") > 20


class Tags(HTMLParser):
    """The names of all attributes, and how many scripts there are."""

    def __init__(self):
        super().__init__()
        self.attributes: set[str] = set()
        self.scripts = 0

    def handle_starttag(self, tag, attrs):
        self.attributes |= set(dict(attrs))
        self.scripts += tag == "script"


def test_text_of_a_run_hides_nothing(tmp_path):
    """A thought with U+202E turned the page's own words around."""
    folder = reading_run(tmp_path / "run")
    said = {"thought": "0\u202e51/0000", "reading": "0051/0000"}
    _rewrite(folder / "episodes.jsonl", lambda row: row | {"turns": [row["turns"][0] | said]})
    html = report_html(read_run(folder))
    assert "0<mark>‹U+202E›<small>(0)</small></mark>51" in html
    assert "\u202e" not in html


def test_a_summary_with_bare_numbers_and_nulls_is_read(folder):
    summary = read_run(folder).summary
    assert summary.tasks[CLICK].valid_tool_calls_after.mean == 0.99
    assert summary.tasks[CLICK].keys_per_turn_after is None
    assert summary.tasks[GAME].keys_per_turn_after.mean == 15.8


def test_a_folder_without_a_run_is_refused_with_what_to_give(tmp_path):
    with pytest.raises(LabError, match="holds no run"):
        read_run(tmp_path)


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"task": "t", "phase": "sft", "step": 0}\n{oops}\n')
    with pytest.raises(LabError, match=r"metrics.jsonl, line 2, is not JSON"):
        read_run(tmp_path)


def test_the_command_writes_the_report_where_it_is_told(folder, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("<!doctype html>")
    assert write_report(folder) == folder / "report.html"


def test_a_gap_in_the_measurements_is_a_gap_in_the_line():
    lines = [Line("a", [0, 1, 2, 3], [1, 2, math.nan, 3], half=[1, math.nan, 1, 1])]
    chart = line_chart(lines, label="a", x_label="step")
    assert [len(piece) for piece in chart.curves[0].pieces] == [2, 1]
    assert len(chart.curves[0].marks) == 3
    assert len(chart.bands[0].corners) == 4
    assert all(math.isfinite(v) for point in chart.bands[0].corners for v in point)


def test_a_chart_of_nothing_is_no_chart():
    assert line_chart([Line("a", [0], [math.nan])], label="a", x_label="step") is None
    assert bar_chart([], label="a") is None


def test_ticks_are_round_and_inside():
    assert ticks(0.0, 1.0) == [0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(0, 39) == [0, 10, 20, 30]
    assert ticks(-0.03, 0.041) == [-0.02, 0, 0.02, 0.04]
