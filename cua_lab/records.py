"""What a run leaves in its folder, as dataclasses: written by `cua_lab.run`, read by everybody.

    metrics.jsonl   one `Step` a line: an optimizer step of the warm-up or of GRPO
    episodes.jsonl  one `EpisodeRow` a line
    summary.json    `Summary`, once the run has ended, with `format`
    progress.json   carries `format` as well

Invariant: missing is not zero. What was not measured is `None` (null in the file), a field that a
line does not have is `None`, and one that this version does not know is left out, so that a run of
an earlier version is read; one of a later format is refused in words.

Formats: 1 has no number in it; 2 counts the record files in `progress.json`; 3 calls
the tally's `work` there `tokens_by_part`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from cua_lab.errors import LabError
from cua_lab.stats import Estimate

FORMAT = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of metrics.jsonl: one optimizer step of the warm-up (sft) or of GRPO."""

    task: str
    phase: str
    """`sft` or `grpo`."""
    step: int
    """Counts from 1 in each phase."""
    stage: str | None = None
    updates: int | None = None
    skipped: bool | None = None
    episodes: int | None = None
    failed_episodes: int | None = None
    truncated_episodes: int | None = None
    groups: float | None = None
    zero_variance_groups: float | None = None
    reward_mean: float | None = None
    reward_std: float | None = None
    """Mean over the step's groups of the spread inside a group."""
    loss: float | None = None
    policy_loss: float | None = None
    kl: float | None = None
    entropy: float | None = None
    """Nats per policy token."""
    held_out_loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    ratio_first_error: float | None = None
    ratio_mean: float | None = None
    ratio_max: float | None = None
    clip_fraction: float | None = None
    tis_mean: float | None = None
    logprob_gap_max: float | None = None
    logprob_gap_mean: float | None = None
    policy_tokens: int | None = None
    tokens: int | None = None
    padded_tokens: int | None = None
    success: float | None = None
    valid_tool_calls: float | None = None
    """Share of 0..1."""
    keys_per_turn: float | None = None
    cells_read: float | None = None
    """Share of the cells of a screen that the policy said right."""
    screens_read: float | None = None
    """Share of screens that it said without a mistake."""
    risky_proposed: int | None = None
    """Calls that the safety policy did not simply allow; `None` without a gate, as those below."""
    risky_confirmed: int | None = None
    risky_rejected: int | None = None
    risky_denied: int | None = None
    penalty_mean: float | None = None
    """What the gate took off an episode's reward; `reward_mean` is after it."""
    seconds: float | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """What a trainer measured that has no field here; on the line beside the others."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """What the policy did at one screenshot."""

    action: dict[str, Any] = field(default_factory=dict)
    """The arguments of its call, coordinates in the space the policy speaks; empty for no call."""
    valid: bool | None = None
    text: str = ""
    """What it said, raw."""
    thought: str = ""
    """What it said before its call."""
    reading: str | None = None
    """What a right transcript of the screen says; `None` where there is none."""
    frame: str | None = None
    """PNG of the screen it saw, relative to the run's folder."""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """One line of episodes.jsonl."""

    task: str
    phase: str
    """`grpo`, `eval_before`, `eval_after` or `ablation_<name>`."""
    stage: str | None = None
    step: int | None = None
    variant: str | None = None
    group: str | None = None
    episode: str | None = None
    reward: float | None = None
    success: bool | None = None
    status: str | None = None
    error: str | None = None
    turns: tuple[TurnRow, ...] = ()
    end: str | None = None
    """PNG of the screen after the last action."""
    gate: tuple[dict[str, Any], ...] | None = None
    """Calls that the safety policy did not simply allow, with their ends; `None` without a gate."""
    penalty: float | None = None

    @property
    def pictured(self) -> bool:
        return any(turn.frame for turn in self.turns)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task's entry in summary.json."""

    reward_before: Estimate | None = None
    reward_after: Estimate | None = None
    success_before: Estimate | None = None
    success_after: Estimate | None = None
    valid_tool_calls_before: Estimate | None = None
    valid_tool_calls_after: Estimate | None = None
    keys_per_turn_before: Estimate | None = None
    keys_per_turn_after: Estimate | None = None
    cells_read_before: Estimate | None = None
    cells_read_after: Estimate | None = None
    screens_read_before: Estimate | None = None
    screens_read_after: Estimate | None = None
    direction_shares_before: dict[str, float] | None = None
    direction_shares_after: dict[str, float] | None = None
    by_variant_before: dict[str, Estimate] = field(default_factory=dict)
    """Success, or reward, of each variant of a task that has some, such as each page."""
    by_variant_after: dict[str, Estimate] = field(default_factory=dict)
    ablations: dict[str, Estimate] = field(default_factory=dict)
    """Reward of the trained policy with `shuffled` or `blank` screens, and of `random` keys."""
    ablations_success: dict[str, Estimate] = field(default_factory=dict)
    """The same for success, where the task has one."""
    learnt: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """summary.json."""

    format: int = 1
    recipe: str | None = None
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, TaskSummary] = field(default_factory=dict)
    logprob_gap_max: float | None = None
    first_ratio_max_error: float | None = None
    episodes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """Failed episodes, evaluations included, by cause."""
    divergences: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tokens_per_s: dict[str, float] = field(default_factory=dict)
    peak_rss_gib: float | None = None


# ---------------------------------------------------------------- writing


def to_json(value: Any) -> Any:
    """JSON values only: dataclasses become mappings, tuples lists, what is not finite null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        return to_json(value.item())
    return value


def step_record(step: Step) -> dict[str, Any]:
    """A step as its line has it: without the fields that its phase never measures."""
    left_out = {"seconds", "more"} | (_NOT_OF_SFT if step.phase == "sft" else {"held_out_loss"})
    values = {key: value for key, value in to_json(step).items() if key not in left_out}
    more: dict[str, Any] = to_json(step.more)
    return _place_first(values) | more


def episode_row_record(row: EpisodeRow) -> dict[str, Any]:
    """An episode as its line has it."""
    record: dict[str, Any] = _place_first(to_json(row))
    for turn in record["turns"]:
        del turn["keys"]  # of an earlier format; they are in the action
    return record


def _place_first(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("stage", "task", "phase", "step")} | record


_OF_SFT = {"stage", "task", "phase", "step", "loss", "held_out_loss", "grad_norm", "lr", "tokens"}
_NOT_OF_SFT = {f.name for f in fields(Step)} - _OF_SFT - {"success"}


# ---------------------------------------------------------------- reading


def check_format(record: Mapping[str, Any], where: str | Path) -> int:
    """The format of a record file, 1 where it says none; a later one is refused."""
    found = record.get("format", 1)
    if not isinstance(found, int) or not 1 <= found <= FORMAT:
        raise LabError(
            f"{where} has format {found!r}; this version of cua-lab reads 1 to {FORMAT}:"
            " use the version that wrote it"
        )
    return found


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file; a last line that is still being written is left out."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LabError(f"{path}, line {number}, is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise LabError(f"{path}, line {number}, is no record: expected an object")
        yield record


def read_json(path: Path) -> dict[str, Any]:
    """A whole record file."""
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise LabError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise LabError(f"{path} is no record: expected an object")
    return record


def make_step(record: Mapping[str, Any]) -> Step:
    """A line of metrics.jsonl, read or about to be written."""
    names = {f.name for f in fields(Step)}
    more = {name: value for name, value in record.items() if name not in names}
    return _typed(Step, {**record, "more": more}, "metrics.jsonl")


def read_episode(record: Mapping[str, Any]) -> EpisodeRow:
    """A line of episodes.jsonl."""
    turns = tuple(_turn(turn) for turn in record.get("turns") or ())
    return _typed(EpisodeRow, {**record, "turns": turns}, "episodes.jsonl")


def read_summary(path: Path) -> Summary:
    """summary.json."""
    record = read_json(path)
    check_format(record, path)
    tasks = {slug: _task(task) for slug, task in (record.get("tasks") or {}).items()}
    known = {name: value for name, value in record.items() if value is not None}
    return _typed(Summary, {**known, "tasks": tasks}, path)


def read_estimate(value: Any) -> Estimate | None:
    """An estimate from `{mean, se, n}`, or from a bare number (no error known)."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if value.get("mean") is None:
            return None
        se = value.get("se")
        return Estimate(float(value["mean"]), math.nan if se is None else se, value.get("n") or 0)
    return Estimate(float(value), math.nan, 0)


def _typed(kind: type[T], record: Mapping[str, Any], where: str | Path) -> T:
    """The record's known fields; others are left out, and one that it must have is named."""
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: value for name, value in record.items() if name in names})
    except TypeError as error:
        raise LabError(
            f"{where}: a record is incomplete ({error}); got {sorted(record)}"
        ) from error


def _turn(record: Mapping[str, Any]) -> TurnRow:
    keys, action = tuple(record.get("keys") or ()), record.get("action") or {}
    return _typed(TurnRow, {**record, "keys": keys, "action": action}, "episodes.jsonl")


def _task(record: Mapping[str, Any]) -> TaskSummary:
    estimates = {
        name: read_estimate(record.get(name))
        for stem in (
            *("reward", "success", "valid_tool_calls", "keys_per_turn"),
            *("cells_read", "screens_read"),
        )
        for name in (f"{stem}_before", f"{stem}_after")
    }
    tables = {
        name: {
            key: found
            for key, value in (record.get(name) or {}).items()
            if (found := read_estimate(value))
        }
        for name in ("ablations", "ablations_success", "by_variant_before", "by_variant_after")
    }
    return _typed(TaskSummary, {**record, **estimates, **tables}, "summary.json")
