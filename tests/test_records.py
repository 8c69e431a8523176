"""One schema of a run's records: what is written is what is read."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from cua_lab.errors import LabError
from cua_lab.records import (
    FORMAT,
    EpisodeRow,
    Step,
    Summary,
    TurnRow,
    episode_row_record,
    make_step,
    read_episode,
    read_lines,
    read_summary,
    step_record,
)
from cua_lab.training.metrics import StepMetrics


def test_every_number_of_a_grpo_step_has_its_field() -> None:
    assert {f.name for f in fields(StepMetrics)} <= {f.name for f in fields(Step)}


def test_a_step_is_read_as_it_was_written() -> None:
    step = Step("t", "grpo", 3, stage="s", loss=0.5, success=None, more={"mine": 1.5})
    record = json.loads(json.dumps(step_record(step)))
    assert list(record)[:4] == ["stage", "task", "phase", "step"]
    assert record["mine"] == 1.5
    assert record["kl"] is None
    assert make_step(record) == step


def test_a_warm_ups_line_has_no_numbers_of_grpo() -> None:
    record = step_record(Step("t", "sft", 1, loss=0.5))
    assert set(record) == {
        *("stage", "task", "phase", "step", "loss", "held_out_loss", "grad_norm", "lr", "tokens"),
        "success",
    }


def test_an_episode_is_read_as_it_was_written() -> None:
    turn = TurnRow({"action": "press", "keys": ["up"]}, valid=True, text="t", frame="f.png")
    row = EpisodeRow("t", "eval_after", stage="s", variant="v", reward=0.5, turns=(turn,))
    assert read_episode(json.loads(json.dumps(episode_row_record(row)))) == row


@pytest.mark.parametrize("found", [FORMAT + 1, 0, "two", None])
def test_a_later_format_is_refused_in_words_and_an_earlier_one_is_read(
    tmp_path: Path, found: object
) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"format": found, "seed": 1}))
    with pytest.raises(LabError, match=rf"format .* reads 1 to {FORMAT}"):
        read_summary(path)
    path.write_text(json.dumps({"seed": 1}))
    assert read_summary(path) == Summary(format=1, seed=1)


@pytest.mark.parametrize("line", ["{", "[1]", "[" * 9000, "nul", "\x00"])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{{}}\n{line}\n")
    with pytest.raises(LabError, match=r"metrics\.jsonl, line 2"):
        list(read_lines(path))


def test_a_line_of_another_encoding_is_named_and_a_torn_last_one_is_left_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff')
    assert list(read_lines(path)) == [{"a": 1}]
    path.write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(LabError, match="line 1"):
        list(read_lines(path))


def test_a_record_without_what_it_must_have_is_one_line() -> None:
    with pytest.raises(LabError, match=r"metrics.jsonl: a record is incomplete.*phase"):
        make_step({"task": "t", "step": 1})
