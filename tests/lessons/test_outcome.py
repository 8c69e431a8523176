"""What a run came to: bars and histograms hold what was measured and nothing else."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from cua_lab.lessons import watch
from cua_lab.lessons.outcome import keys_figure, keys_of, outcome_bars, outcome_figure, ratio_figure
from cua_lab.records import EpisodeRow, TaskSummary, TurnRow
from cua_lab.stats import Estimate


def test_keys_are_counted_in_valid_presses_only() -> None:
    turns = (
        TurnRow({"action": "press", "keys": ["up", "up"]}, valid=True),
        TurnRow({"action": "press", "keys": ["up"] * 40}, valid=False),
        TurnRow({"action": "click", "x": 1, "y": 2}, valid=True),
    )
    assert keys_of([EpisodeRow("t", "grpo", turns=turns)]) == [2]
    assert keys_figure({"before": [2], "after": []}, limit=20)._repr_png_()


def test_what_was_not_measured_has_no_bar() -> None:
    task = TaskSummary(
        reward_after=Estimate(0.5, float("nan"), 1), ablations={"blank": Estimate(0.1, 0.02, 9)}
    )
    assert list(outcome_bars(task)) == ["after GRPO", "after, blank screens"]
    assert outcome_figure({"a task": task})._repr_png_()


def test_a_histogram_reaches_as_far_as_its_ratios() -> None:
    figure = ratio_figure({"now": np.array([0.2, 1.0, 5.0])}, clip_low=0.2, clip_high=0.28)
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 3


def test_a_watched_run_is_drawn_and_its_result_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    async def job() -> str:
        line = {"task": "t", "stage": "s", "phase": "grpo", "step": 1, "reward_mean": 0.5}
        (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        return "done"

    monkeypatch.setattr(watch, "_show", lambda bundle, before, display: shown.extend(bundle))
    assert asyncio.run(watch.watched(job(), tmp_path, every_s=0.01)) == "done"
    assert shown == ["image/png", "text/plain"]


def test_who_stops_watching_stops_the_run(tmp_path: Path) -> None:
    ended: list[str] = []

    async def job() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("kept what was done")

    async def main() -> None:
        async with asyncio.timeout(0.05):
            await watch.watched(job(), tmp_path, every_s=0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert ended == ["kept what was done"]
