"""The main job, on the real parts: what it leaves, that it repeats, that it can be stopped."""

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cua_lab.play.episode import Episode
from cua_lab.recipes import Recipe, load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.progress import Progress
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import build_stage

SUMMARY = {
    "format",
    "recipe",
    "seed",
    "versions",
    "machine",
    "tasks",
    "logprob_gap_max",
    "first_ratio_max_error",
    "episodes",
    "failures",
    "divergences",
    "tokens",
    "seconds",
    "tokens_per_s",
    "peak_rss_gib",
}
TASK = {
    f"{name}_{when}"
    for name in (
        *("reward", "success", "valid_tool_calls", "keys_per_turn", "direction_shares"),
        *("by_variant", "cells_read", "screens_read"),
    )
    for when in ("before", "after")
} | {"ablations", "ablations_success", "learnt"}


def go_on(path: Path, recipe: Recipe) -> None:
    asyncio.run(run_recipe(recipe, RunFolder.create(path, resume=True)))


def lines(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def after_warm_up(path: Path, name: str) -> list[dict[str, Any]]:
    """In the order of the stages: a copy that goes on has its warm-ups first."""
    records = [line for line in lines(path, name) if line["phase"] != "sft"]
    return sorted(records, key=lambda record: record["stage"])


def test_the_summary_has_every_field_of_the_contract_and_each_is_measured(smoke_run: Path) -> None:
    summary = json.loads((smoke_run / "summary.json").read_text())
    assert set(summary) == SUMMARY
    assert list(summary["tasks"]) == ["targets-click", "2048-score"]
    for task in summary["tasks"].values():
        assert set(task) == TASK
        assert set(task["ablations"]) == {"shuffled", "blank", "random", "blind"}
        assert task["reward_before"]["n"] == task["reward_after"]["n"] == 8
    assert set(summary["seconds"]) == {
        *("sft", "prefill", "decode", "env", "train", "eval", "total"),
    }
    assert set(summary["tokens_per_s"]) == {"sft", "prefill", "decode", "train"}
    assert summary["episodes"]["failed"] == 0


def test_engine_and_trainer_agree_and_the_first_ratio_is_one(smoke_run: Path) -> None:
    summary = json.loads((smoke_run / "summary.json").read_text())
    assert summary["logprob_gap_max"] <= 1e-5  # 0.0 with attention in float64 on both sides
    assert summary["first_ratio_max_error"] == 0


def test_no_sampled_token_goes_missing(smoke_run: Path) -> None:
    tokens = json.loads((smoke_run / "summary.json").read_text())["tokens"]
    kept = tokens["trained"] + tokens["masked"] + tokens["resynced"]
    assert tokens["sampled"] == kept + sum(tokens["dropped"].values()) > 0


def test_a_run_leaves_a_report_that_needs_nothing_else(smoke_run: Path) -> None:
    report = (smoke_run / "report.html").read_text()
    assert "targets-click" in report
    assert "data:image/png;base64," in report
    assert "http://" not in report.replace("http://www.w3.org/", "")
    assert "https://" not in report


def test_starts_that_are_pictured_after_grpo_are_those_that_gained_most(smoke_run: Path) -> None:
    """Chosen before GRPO they taught little: most were the same both times."""
    records = lines(smoke_run, "episodes.jsonl")

    def of(phase: str) -> dict[str, dict[str, Any]]:
        return {r["episode"]: r for r in records if r["phase"] == phase}

    def pictured(phase: str) -> set[str]:
        chosen = [r for r in of(phase).values() if r["turns"] and r["turns"][0]["frame"]]
        assert all((smoke_run / r["end"]).exists() for r in chosen if r["end"])
        return {record["episode"] for record in chosen}

    def gain(name: str) -> float:
        before, after = of("eval_before")[name], of("eval_after")[name]
        if after["success"] is None:
            return float(after["reward"] - before["reward"])
        return float(after["success"]) - float(before["success"])

    kept, shown = pictured("eval_before"), pictured("eval_after")
    assert set() != shown <= kept
    for task in {r["task"] for r in records}:
        here = {name for name in kept if of("eval_before")[name]["task"] == task}
        least = min(gain(name) for name in here & shown)
        assert all(gain(name) <= least for name in here - shown)


def test_a_run_leaves_two_siblings_to_look_at_token_by_token(smoke_run: Path) -> None:
    payload = json.loads((smoke_run / "viewer.json").read_text())
    assert 1 <= len(payload["members"]) <= 2
    assert all(member["images"] for member in payload["members"])


def test_two_runs_with_one_seed_write_the_same_bits(
    smoke_run: Path, smoke_recipe: Recipe, warm_copy: Callable[[], Path]
) -> None:
    copy = warm_copy()
    go_on(copy, smoke_recipe)
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert after_warm_up(copy, name) == after_warm_up(smoke_run, name)


def test_a_stopped_run_goes_on_to_the_same_bits(
    smoke_run: Path, smoke_recipe: Recipe, warm_copy: Callable[[], Path]
) -> None:
    """Cancelled, as Ctrl-C does, in the middle of the second GRPO step of the first stage."""
    copy = warm_copy()

    async def stopped() -> None:
        job = asyncio.create_task(run_recipe(smoke_recipe, RunFolder.create(copy, resume=True)))
        while not any(line["phase"] == "grpo" for line in lines(copy, "metrics.jsonl")):
            await asyncio.sleep(0.002)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(stopped())
    assert (
        not (copy / "summary.json").exists()
        or Progress.load(RunFolder(copy)).stage("game").step == 0
    )
    go_on(copy, smoke_recipe)
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert after_warm_up(copy, name) == after_warm_up(smoke_run, name)


def played(path: Path, stage: str, concurrency: int) -> list[Episode]:
    """One GRPO step's episodes of the warmed-up policy."""
    recipe = load_recipe("smoke", [f"run.concurrency={concurrency}"])
    folder = RunFolder(path)
    run = StageRun.open(build_stage(recipe, recipe.stage(stage)), folder, Progress.load(folder))
    try:
        return asyncio.run(run.worker.play(run.context.training_plans(0)))
    finally:
        run.engine.close()


@pytest.mark.parametrize("stage", ["click", "game"])
def test_concurrency_changes_no_token_and_no_reward(
    warm_copy: Callable[[], Path], stage: str
) -> None:
    """The shape of a batch moves the last bits of a log-probability, and nothing else."""
    path = warm_copy()
    alone, together = played(path, stage, 1), played(path, stage, 8)
    for one, other in zip(alone, together, strict=True):
        assert one.reward == other.reward
        assert [t.prompt_ids for t in one.turns] == [t.prompt_ids for t in other.turns]
        assert [t.output_ids for t in one.turns] == [t.output_ids for t in other.turns]
        for a, b in zip(one.turns, other.turns, strict=True):
            assert a.output_logprobs == pytest.approx(b.output_logprobs, abs=1e-6)


def test_a_dead_screen_is_a_failure_that_leaves_its_siblings_alone(
    warm_copy: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl#6375: a failed sibling counted as reward 0 turned an advantage of 1.0 into -49.5."""
    from cua_lab.computer.tool import ComputerTool, DeadScreen

    path = warm_copy()
    recipe = load_recipe("smoke")
    folder = RunFolder(path)
    run = StageRun.open(build_stage(recipe, recipe.stage("click")), folder, Progress.load(folder))
    screenshot, asked = ComputerTool.screenshot, iter(range(1000))

    async def dies_once(self: ComputerTool) -> Any:
        if next(asked) == 2:
            raise DeadScreen("the cable was pulled")
        return await screenshot(self)

    monkeypatch.setattr(ComputerTool, "screenshot", dies_once)
    try:
        episodes = asyncio.run(run.worker.play(run.context.training_plans(0)))
        samples = [sample for episode in episodes for sample in run.samples(episode)]
    finally:
        run.engine.close()
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert len(failed) == 1
    assert failed[0].reward is None
    assert "cable" in (failed[0].error or "")
    written_off = [sample for sample in samples if sample.status == "failed"]
    assert [sample.reward for sample in written_off] == [None]
    assert len(written_off[0].image_grid_thw) == 1, "every rank runs the vision tower"
    assert len(samples) == len(episodes)


def test_metrics_hold_no_times_so_that_two_runs_can_be_compared(smoke_run: Path) -> None:
    assert not any("seconds" in line for line in lines(smoke_run, "metrics.jsonl"))
    timings = lines(smoke_run, "timings.jsonl")
    assert all(math.isfinite(line["train_s"]) for line in timings)
