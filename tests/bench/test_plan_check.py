"""The planner beside runs that were measured: those of the package, and `measured_runs.json`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cua_lab.bench.plan_check import RunRecord, StageSteps, compare, read_run, speeds_of
from cua_lab.errors import LabError
from cua_lab.lessons.finished_run import FOLDER, packed_runs

WITHIN = 0.25


@pytest.mark.parametrize("name", packed_runs())
def test_a_run_is_planned_within_a_quarter_from_its_own_parts(name: str) -> None:
    run = read_run(FOLDER / name)
    for one in compare([run], speeds_of([run])):
        assert one.ratio == pytest.approx(1, abs=WITHIN), one


@pytest.mark.parametrize(
    ("fed", "planned"),
    [
        ("laptop", "no_kl"),
        ("no_kl", "laptop"),
        ("short_cut", "short_cut_gated"),
        ("short_cut_gated", "short_cut"),
        ("key_only", "2048-score"),
    ],
)
def test_another_run_of_the_same_machine_is_planned_within_a_quarter(
    fed: str, planned: str
) -> None:
    speeds = speeds_of([read_run(FOLDER / fed)])
    for one in compare([read_run(FOLDER / planned)], speeds):
        assert one.ratio == pytest.approx(1, abs=WITHIN), one


def recorded() -> dict[str, RunRecord]:
    """See the file for the machine and for what was run."""
    text = Path(__file__).with_name("measured_runs.json").read_text(encoding="utf-8")
    return {
        name: RunRecord(**run | {"stages": tuple(StageSteps(**stage) for stage in run["stages"])})
        for name, run in json.loads(text)["runs"].items()
    }


def test_a_run_on_a_quiet_machine_is_planned_within_a_quarter() -> None:
    run = recorded()["quiet"]
    for one in compare([run], speeds_of([run])):
        assert one.ratio == pytest.approx(1, abs=WITHIN), one


def test_another_number_of_episodes_at_once_is_planned_from_two_that_were_measured() -> None:
    """2 and 128 at once say what a round and what a turn costs; 16 was left out."""
    runs = recorded()
    speeds = speeds_of([runs["128 at once"], runs["2 at once"]])
    for one in compare([runs[f"{n} at once"] for n in (128, 16, 2)], speeds):
        assert one.ratio == pytest.approx(1, abs=WITHIN), one
    one_alone = speeds_of([runs["128 at once"]])
    wrong = compare([runs["2 at once"]], one_alone)
    assert min(one.ratio for one in wrong) < 1 - WITHIN, "one run cannot tell: the figures can fail"


STAGE = StageSteps("one", steps=2, episodes=8, turns=16, sampled=160, tokens=640,
                   train_s=4.0, step_s=0.0)  # fmt: skip


def made(concurrency: int) -> RunRecord:
    """A machine of known speeds: .01 s a token of a round, .002 s a token, .5 s a round and .1 s a
    turn of its host, 1,000 tokens/s of prefill after .2 s a round."""
    run = RunRecord("made", concurrency, 64, (STAGE,), 480, 0, 0, 0)
    return replace(
        run,
        decode_s=run.rounds * 10 * 0.01 + 2 * 160 * 0.002,
        prefill_s=run.rounds * 0.2 + 0.48,
        env_s=run.rounds * 0.5 + 2 * 16 * 0.1,
    )


def test_two_runs_give_back_the_speeds_that_they_were_made_with() -> None:
    assert (made(8).rounds, made(2).rounds) == (4, 16)
    speeds = speeds_of([made(8), made(2)])
    found = (speeds.decode_step_s, speeds.decode_token_s, speeds.env_s, speeds.host_s)
    assert found == pytest.approx((0.01, 0.002, 0.5, 0.1))
    assert (speeds.batch_s, speeds.prefill_tokens_s) == pytest.approx((0.2, 1000))
    assert speeds.train_tokens_s == pytest.approx(160)


def test_the_simulation_adds_up_to_the_parts_that_it_was_fed() -> None:
    """In rounds nothing overlaps but the sandboxes of a round."""
    speeds = speeds_of([made(8), made(2)])
    for run in (made(8), made(2), made(4)):
        (one,) = compare([run], speeds)
        parts = (run.decode_s + run.prefill_s + run.env_s) / 2
        assert one.plan.rollout.seconds == pytest.approx(parts)
        assert one.plan.step_s == pytest.approx(parts + 4.0)


def test_a_folder_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="runs that have ended"):
        read_run(tmp_path)


def test_a_run_without_grpo_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"format": 2, "seconds": {"sft": 1.0}}))
    (tmp_path / "config.yaml").write_text("run: {concurrency: 4}\n")
    with pytest.raises(LabError, match="seconds of sft with an engine of kind embedded"):
        read_run(tmp_path)
