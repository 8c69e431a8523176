"""The planner beside finished runs of this lab: what a step should have taken, and what it took.

    run folders ──read_run──▶ RunRecord ──speeds_of──▶ Speeds ──compare──▶ planned and measured

A run's own records say how many tokens each part worked on and how many seconds it took; the engine
is the embedded one, in rounds, and one process drives every screen. With r rounds of a step,
a answers' tokens and w turns in all, over the runs that are given,

    decode_s  = r a decode_step_s + tokens decode_token_s
    prefill_s = r batch_s + tokens / prefill_tokens_s
    env_s     = r env_s + w host_s

by least squares of the relative errors. Runs of one number of episodes at once cannot tell a round
from what is in it: everything is then put on the second term.

Invariant: the step times that a plan is compared with are in none of the speeds; only parts are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from cua_lab.errors import LabError
from cua_lab.miles.capacity import Plan, Speeds, Workload, plan
from cua_lab.recipes.source import read_yaml
from cua_lab.records import make_step, read_episode, read_lines, read_summary


@dataclass(frozen=True, slots=True)
class StageSteps:
    """The GRPO steps of a stage; everything but `steps` is the mean of one."""

    stage: str
    steps: int
    episodes: float
    turns: float
    """Of all episodes."""
    sampled: float
    """Tokens that the policy said."""
    tokens: float
    """Tokens that training read."""
    train_s: float
    step_s: float

    def rounds(self, concurrency: int) -> float:
        """Batches of a step, each an answer for every episode that plays."""
        per_episode = max(1, round(self.turns / self.episodes))
        return per_episode * math.ceil(self.episodes / concurrency)

    @property
    def answer(self) -> float:
        """Tokens of a turn."""
        return self.sampled / self.turns


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a finished run says of its parts; seconds and tokens are sums over its GRPO steps."""

    name: str
    concurrency: int
    max_batch: int
    stages: tuple[StageSteps, ...]
    prefill_tokens: float
    prefill_s: float
    decode_s: float
    env_s: float

    def total(self, name: str) -> float:
        """Sum of a field of its stages over all their steps."""
        return math.fsum(stage.steps * getattr(stage, name) for stage in self.stages)

    @property
    def rounds(self) -> float:
        return math.fsum(stage.steps * stage.rounds(self.concurrency) for stage in self.stages)

    @property
    def answered(self) -> float:
        """Tokens that one sequence of every round decodes, one after the other."""
        return math.fsum(
            stage.steps * stage.rounds(self.concurrency) * stage.answer for stage in self.stages
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """A stage's step, planned and measured."""

    run: str
    stage: str
    concurrency: int
    plan: Plan
    measured_s: float

    @property
    def ratio(self) -> float:
        """Planned over measured."""
        return self.plan.step_s / self.measured_s


def read_run(folder: Path) -> RunRecord:
    """A finished run with GRPO steps; a `LabError` for any other."""
    summary = folder / "summary.json"
    if not summary.is_file():
        raise LabError(f"{summary} is not there: the planner is compared with runs that have ended")
    found = read_summary(summary)
    run, kind, most = _settings(folder / "config.yaml")
    if kind != "embedded" or {"prefill", "decode", "env", "train"} - found.seconds.keys():
        raise LabError(
            f"{folder} has seconds of {', '.join(found.seconds)} with an engine of kind {kind};"
            " expected GRPO steps with the embedded engine"
        )
    return RunRecord(
        name=folder.name,
        concurrency=run,
        max_batch=most,
        stages=tuple(_stages(folder)),
        prefill_tokens=found.seconds["prefill"] * found.tokens_per_s["prefill"],
        prefill_s=found.seconds["prefill"],
        decode_s=found.seconds["decode"],
        env_s=found.seconds["env"],
    )


def _settings(config: Path) -> tuple[int, str, int]:
    """Episodes at once, the engine and its largest batch; also of a run of an earlier version,
    whose other settings this one may not know."""
    found = read_yaml(config.read_text(encoding="utf-8"), config.name, {})
    engine = found.get("engine", {})
    concurrency = found["run"]["concurrency"]
    return concurrency, engine.get("kind", "embedded"), engine.get("max_batch", concurrency)


def _stages(folder: Path) -> Iterator[StageSteps]:
    lines = map(make_step, read_lines(folder / "metrics.jsonl"))
    grpo = [step for step in lines if step.phase == "grpo"]
    timings = [line for line in read_lines(folder / "timings.jsonl") if line["phase"] == "grpo"]
    turns: dict[str | None, list[int]] = {}
    for line in read_lines(folder / "episodes.jsonl"):
        row = read_episode(line)
        if row.turns:  # a packed run keeps the turns of a few episodes only
            turns.setdefault(row.stage, []).append(len(row.turns))
    for name in dict.fromkeys(step.stage for step in grpo):
        steps = [step for step in grpo if step.stage == name]
        times = [line for line in timings if line["stage"] == name]
        yield StageSteps(
            stage=str(name),
            steps=len(steps),
            episodes=fmean(step.episodes or 0 for step in steps),
            turns=fmean(turns[name]) * fmean(step.episodes or 0 for step in steps),
            sampled=fmean(step.policy_tokens or 0 for step in steps),
            tokens=fmean(step.tokens or 0 for step in steps),
            train_s=fmean(line["train_s"] for line in times),
            step_s=fmean(line["step_s"] for line in times),
        )


def speeds_of(runs: Sequence[RunRecord]) -> Speeds:
    """What this machine does, from the parts of runs; see the head of this file."""
    rounds, turns = [run.rounds for run in runs], [run.total("turns") for run in runs]
    step, token = _split(
        [run.answered for run in runs],
        [run.total("sampled") for run in runs],
        [run.decode_s for run in runs],
    )
    batch, prefill = _split(
        rounds, [run.prefill_tokens for run in runs], [run.prefill_s for run in runs]
    )
    env, host = _split(rounds, turns, [run.env_s for run in runs])
    trained = math.fsum(run.total("tokens") for run in runs)
    return Speeds(
        prefill_tokens_s=1 / prefill if prefill else math.inf,
        decode_step_s=step,
        decode_token_s=token,
        env_s=env,
        max_batch=max(run.max_batch for run in runs),
        train_tokens_s=trained / math.fsum(run.total("train_s") for run in runs),
        batch_s=batch,
        host_s=host,
        rounds=True,
    )


def _split(
    fixed: Sequence[float], each: Sequence[float], seconds: Sequence[float]
) -> tuple[float, float]:
    """a, b >= 0 of seconds = a fixed + b each."""
    took = np.asarray(seconds)
    rows = np.stack([fixed, each], axis=1) / took[:, None]
    found, _, rank, _ = np.linalg.lstsq(rows, np.ones(len(took)), rcond=1e-6)
    if rank == 2 and min(found) >= 0:
        return float(found[0]), float(found[1])
    if rank == 2 and found[1] < 0:
        return math.fsum(seconds) / math.fsum(fixed), 0.0
    return 0.0, math.fsum(seconds) / math.fsum(each)


def workload_of(stage: StageSteps, run: RunRecord) -> Workload:
    """A step of the stage; each turn's prompt grows by the same."""
    new = (run.total("tokens") - run.total("sampled")) / run.total("turns")
    grown = max(0, round((stage.tokens - stage.sampled) / stage.turns))
    return Workload(
        episodes=round(stage.episodes),
        turns=max(1, round(stage.turns / stage.episodes)),
        prompt_tokens=grown,
        frame_tokens=0,
        scaffold_tokens=grown,
        answer_tokens=max(1, round(stage.answer)),
        computed=run.prefill_tokens / (new * run.total("turns")),
    )


def planned(stage: StageSteps, run: RunRecord, speeds: Speeds, concurrency: int) -> Plan:
    """A step of the stage with so many episodes at once."""
    return plan(workload_of(stage, run), speeds, sandboxes=concurrency, gpus=1)


def compare(runs: Sequence[RunRecord], speeds: Speeds) -> list[Compared]:
    """Each stage of each run, planned with these speeds and as many episodes at once as it had."""
    return [
        Compared(
            run.name,
            stage.stage,
            run.concurrency,
            planned(stage, run, speeds, run.concurrency),
            stage.step_s,
        )
        for run in runs
        for stage in run.stages
    ]
