"""A fault of one episode is that episode's: injected at each border, table-driven.

Whatever strikes one member of a group, it fails with its cause (or is none the worse), its siblings
keep every token and reward, its group's statistics are those of the others, and training goes on.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from cua_lab.errors import LabError
from cua_lab.play.causes import kind_of
from cua_lab.play.episode import Episode
from cua_lab.recipes import Recipe, parse_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.job import run_recipe
from cua_lab.run.progress import Progress
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import build_stage
from cua_lab.training.trainer import GRPOTrainer, advantages_of
from tests.run.support_faults import (
    FAULTS,
    Fault,
    choose_victim,
    grading,
    over_the_wire,
    raises,
)
from tests.run.support_kill import TINY

MEMBERS, STRUCK = 4, 1
VICTIM_ID = f"one-0-0-{STRUCK}"


def recipe(*more: str) -> Recipe:
    distance = TINY.replace("args: {level: 1,", "args: {reward: distance, level: 1,")
    return parse_recipe(distance, name="tiny", overrides=[f"grpo.group_size={MEMBERS}", *more])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StageRun]:
    """A stage with a policy that always clicks."""
    over_the_wire(monkeypatch)
    loaded = recipe()
    context = build_stage(loaded, loaded.stages[0])
    opened = StageRun.open(context, RunFolder(tmp_path), Progress())
    opened.worker.timeout_s = 600.0
    yield opened
    opened.engine.close()


_expected: list[Episode] = []


def played(run: StageRun) -> list[Episode]:
    return asyncio.run(run.worker.play(run.context.training_plans(0)))


def expected(run: StageRun) -> list[Episode]:
    """The step as it is without a fault; the policy's first weights are a seed's."""
    if not _expected:
        _expected.extend(played(run))
    return _expected


def facts(episode: Episode) -> Any:
    return (
        episode.status,
        episode.reward,
        [turn.output_ids for turn in episode.turns],
        [action.arguments for action in episode.actions],
        episode.screenshots,
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.where}-{fault.name}")
def test_a_fault_of_one_episode_is_that_episodes(
    run: StageRun, monkeypatch: pytest.MonkeyPatch, fault: Fault, counted: Any
) -> None:
    counted(f"fault-{fault.where}", faults=1, episodes=MEMBERS)
    whole = expected(run)
    assert len({episode.reward for episode in whole}) > 1, "else no statistic could be wrong"
    with monkeypatch.context() as patch:
        choose_victim(patch, lambda id: id == VICTIM_ID, fault.limit_s, fault.where == "rfb")
        fault.install(patch)
        episodes = played(run)
    for index, (one, other) in enumerate(zip(episodes, whole, strict=True)):
        if index != STRUCK:
            assert facts(one) == facts(other), "a healthy sibling was touched"
    struck = episodes[STRUCK]
    if fault.cause is None:
        assert facts(struck) == facts(whole[STRUCK])
        return
    if fault.cause == "" and struck.status != "failed":
        assert struck.reward == whole[STRUCK].reward, "graded before the fault"
        return
    assert (struck.status, struck.reward, struck.success) == ("failed", None, None)
    assert re.search(fault.cause, struck.error or "", re.S), struck.error
    samples = [sample for episode in episodes for sample in run.samples(episode)]
    rewards = [e.reward for e in episodes if e.reward is not None]
    grpo = run.context.stage.grpo
    values = advantages_of(samples, grpo).values
    for sample, value in zip(samples, values, strict=True):
        if sample.status == "failed":
            assert not sample.counts
            continue
        assert float(value) == pytest.approx(
            (sample.reward - fmean(rewards)) / pstdev(rewards), rel=1e-3
        )
    assert run.tally.add_causes(episodes) == [VICTIM_ID]
    assert run.tally.causes == {kind_of(struck.error): 1}


def test_a_step_with_a_failed_member_trains_on_the_others(
    run: StageRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        choose_victim(patch, lambda id: id == VICTIM_ID)
        FAULTS[0].install(patch)
        episodes = played(run)
    samples = [sample for episode in episodes for sample in run.samples(episode)]
    trainer = GRPOTrainer(run.policy, run.context.stage.grpo, temperature=1.0)
    metrics = trainer.step(samples)
    assert (metrics.failed_episodes, metrics.updates) == (1, 1)
    assert metrics.grad_norm > 0


def records(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def run_all(path: Path, *more: str) -> dict[str, Any]:
    return asyncio.run(run_recipe(recipe(*more), RunFolder.create(path, resume=False)))


def test_a_run_counts_failures_by_cause_and_shows_the_first_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_the_wire(monkeypatch)
    chosen = {"one-0-0-1", "one-1-0-2", "two-2-0-0"}
    choose_victim(monkeypatch, chosen.__contains__)
    grading(raises(OSError("no game on port 5900")))(monkeypatch)
    summary = run_all(tmp_path / "run")
    failed = [e for e in records(tmp_path / "run", "episodes.jsonl") if e["status"] == "failed"]
    assert {episode["episode"] for episode in failed} == chosen
    assert all(episode["reward"] is None for episode in failed)
    ((cause, count),) = summary["failures"].items()
    assert ("no game on port #" in cause, count) == (True, 3)
    assert summary["episodes"]["failed"] == 3
    steps = [s for s in records(tmp_path / "run", "metrics.jsonl") if s["phase"] == "grpo"]
    assert [step["failed_episodes"] for step in steps] == [1, 1, 0, 0, 0, 1]
    pictured = [e for e in failed if any(turn["frame"] for turn in e["turns"]) or e["end"]]
    assert [episode["episode"] for episode in pictured] == ["one-0-0-1"], "the first of its cause"
    page = (tmp_path / "run/report.html").read_text()
    section = page[page.index("<h2>What failed</h2>") : page.index("<h2>The numbers</h2>")]
    assert "no game on port 5900" in section
    assert "data:image/png" in section, "its film strip"


@pytest.mark.parametrize(
    ("from_step", "where"), [(None, "eval_before: none of 2"), (1, "GRPO step 3, 2 steps in a row")]
)
def test_a_fault_of_all_episodes_stops_the_run_with_its_causes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    from_step: int | None,
    where: str,
    counted: Any,
) -> None:
    counted("fault-all", runs=1)
    over_the_wire(monkeypatch)

    def chosen(id: str) -> bool:
        step = id.split("-")[1]
        return from_step is None or (step.isdigit() and int(step) >= from_step)

    choose_victim(monkeypatch, chosen)
    grading(raises(OSError("no game")))(monkeypatch)
    with pytest.raises(LabError, match=f"one, {where}") as caught:
        run_all(tmp_path / "run", "run.stop_after_ungraded_steps=2")
    assert re.search(r"\d times: .*no game", str(caught.value))
    assert "--resume" in str(caught.value)
