"""A run's folder is never half written and never written over by accident."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from cua_lab.errors import LabError
from cua_lab.records import to_json
from cua_lab.run.folder import RunFolder


def test_a_second_run_of_the_same_name_is_refused_with_the_three_ways_on(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "laptop", resume=False).append("metrics.jsonl", {"step": 1})
    with pytest.raises(LabError, match=r"--resume.*--name.*--overwrite"):
        RunFolder.create(tmp_path / "laptop", resume=False)


def test_resuming_where_nothing_was_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="nothing to resume"):
        RunFolder.create(tmp_path / "laptop", resume=True)


def test_a_line_torn_by_a_crash_is_left_out(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, resume=False)
    folder.append("metrics.jsonl", {"step": 1})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert [record["step"] for record in folder.records("metrics.jsonl")] == [1]


def test_resuming_drops_the_records_of_steps_that_will_be_done_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, resume=False)
    for step in range(4):
        folder.append("metrics.jsonl", {"step": step})
    folder.keep(lambda record: record["step"] < 2)
    assert [record["step"] for record in folder.records("metrics.jsonl")] == [0, 1]


def test_what_is_not_finite_is_written_as_missing_and_never_as_zero() -> None:
    value = {"a": math.nan, "b": np.float32(0.5), "c": (math.inf, np.int64(3))}
    assert json.loads(json.dumps(to_json(value), allow_nan=False)) == {
        "a": None,
        "b": 0.5,
        "c": [None, 3],
    }
