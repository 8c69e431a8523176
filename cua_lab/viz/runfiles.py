"""A run's folder, read back: what `cua_lab.run` writes and every picture starts from.

    config.yaml     the recipe as it ran (shown as text)
    metrics.jsonl   one `Step` a line
    episodes.jsonl  one `EpisodeRow` a line; a few have screenshots under frames/
    summary.json    `Summary`, once the run has ended
    viewer.json     optional: the mask viewer's payload (`viewer_payload`) of one episode

Invariant: missing is not zero. Every field that a run may not have measured is `None`, an absent
file is an empty reading, and the torn last line of a file that is being written is left out, so a
live run can be drawn at any moment.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb
from cua_lab.stats import Estimate
from cua_lab.viz.frames import Frame

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of metrics.jsonl: one optimizer step of the warm-up (sft) or of GRPO."""

    task: str
    phase: str
    """`sft` or `grpo`."""
    step: int
    stage: str | None = None
    loss: float | None = None
    reward_mean: float | None = None
    reward_std: float | None = None
    """Mean over the step's groups of the spread inside a group."""
    success: float | None = None
    valid_tool_calls: float | None = None
    """Share of 0..1."""
    zero_variance_groups: float | None = None
    groups: float | None = None
    entropy: float | None = None
    """Nats a policy token."""
    ratio_mean: float | None = None
    ratio_max: float | None = None
    clip_fraction: float | None = None
    grad_norm: float | None = None
    logprob_gap_max: float | None = None
    keys_per_turn: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TurnRow:
    """What the policy did at one screenshot."""

    action: dict[str, Any] = field(default_factory=dict)
    """The arguments of its call, coordinates in the space the policy speaks; empty for no call."""
    valid: bool | None = None
    keys: tuple[str, ...] = ()
    text: str = ""
    """What it said, raw."""
    frame: str | None = None
    """PNG of the screen it saw, relative to the run's folder."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """One line of episodes.jsonl."""

    task: str
    phase: str
    """`grpo`, `eval_before`, `eval_after` or `ablation_<name>`."""
    stage: str | None = None
    step: int | None = None
    group: str | None = None
    episode: str | None = None
    reward: float | None = None
    success: bool | None = None
    status: str | None = None
    turns: tuple[TurnRow, ...] = ()

    @property
    def pictured(self) -> bool:
        return bool(self.turns) and any(turn.frame for turn in self.turns)


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

    recipe: str | None = None
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, TaskSummary] = field(default_factory=dict)
    logprob_gap_max: float | None = None
    first_ratio_max_error: float | None = None
    episodes: dict[str, int] = field(default_factory=dict)
    divergences: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tokens_per_s: dict[str, float] = field(default_factory=dict)
    peak_rss_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a report needs."""

    path: Path
    steps: tuple[Step, ...]
    episodes: tuple[EpisodeRow, ...]
    summary: Summary | None
    """`None` while the run goes on."""
    config: str
    viewer: dict[str, Any] | None

    @property
    def tasks(self) -> tuple[str, ...]:
        """In the order the run met them, but the one that proves vision comes first."""
        named = [step.task for step in self.steps] + [e.task for e in self.episodes]
        summarised = list(self.summary.tasks) if self.summary else []
        met = dict.fromkeys(summarised + named)
        return tuple(sorted(met, key=lambda task: not task.startswith("targets")))

    def grpo(self, task: str) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if s.task == task and s.phase == "grpo")

    def pictured(self, task: str, phase: str) -> tuple[EpisodeRow, ...]:
        """Episodes with screenshots."""
        return tuple(e for e in self.episodes if e.task == task and e.phase == phase and e.pictured)


def read_run(path: str | Path) -> Run:
    """Read a run's folder, finished or not."""
    path = Path(path)
    if not (path / "metrics.jsonl").exists() and not (path / "summary.json").exists():
        raise LabError(
            f"{path} holds no run: it has neither metrics.jsonl nor summary.json;"
            " give the folder that `cua-lab run` wrote, e.g. runs/laptop"
        )
    summary, viewer = path / "summary.json", path / "viewer.json"
    config = path / "config.yaml"
    return Run(
        path=path,
        steps=tuple(_typed(Step, line) for line in _lines(path / "metrics.jsonl")),
        episodes=tuple(_episode(line) for line in _lines(path / "episodes.jsonl")),
        summary=_summary(_json(summary)) if summary.exists() else None,
        config=config.read_text(encoding="utf-8-sig") if config.exists() else "",
        viewer=_json(viewer) if viewer.exists() else None,
    )


def episode_frames(
    run: Run, episode: EpisodeRow, *, coordinate_space: str = "0-1000"
) -> tuple[Frame, ...]:
    """The screenshots of an episode with the actions that answered them."""
    frames = []
    for turn in episode.turns:
        if turn.frame is None:
            continue
        picture = open_rgb(run.path / turn.frame)
        action = {**turn.action, "keys": turn.keys} if turn.keys else turn.action
        if not turn.valid and not action:
            action = {"action": "no valid call"}
        frames.append(Frame.of(picture, action, coordinate_space=coordinate_space))
    return tuple(frames)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise LabError(f"{path} is not JSON (line {error.lineno}): {error.msg}") from error


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    whole = [
        t for t in path.read_text(encoding="utf-8-sig").splitlines(keepends=True) if t[-1] == "\n"
    ]
    return [_line(path, number, text) for number, text in enumerate(whole, 1) if text.strip()]


def _line(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise LabError(f"{path}, line {number}, is not JSON: {error.msg}") from error


def _typed(kind: type[T], record: Mapping[str, Any]) -> T:
    """The record's known fields; others are a newer run's and are left out."""
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in record.items() if name in names})


def _episode(record: Mapping[str, Any]) -> EpisodeRow:
    turns = tuple(_turn(turn) for turn in record.get("turns") or ())
    return _typed(EpisodeRow, {**record, "turns": turns})


def _turn(record: Mapping[str, Any]) -> TurnRow:
    keys, action = tuple(record.get("keys") or ()), record.get("action") or {}
    return _typed(TurnRow, {**record, "keys": keys, "action": action})


def _summary(record: Mapping[str, Any]) -> Summary:
    tasks = {slug: _task(task) for slug, task in (record.get("tasks") or {}).items()}
    known = {name: value for name, value in record.items() if value is not None}
    return _typed(Summary, {**known, "tasks": tasks})


def _task(record: Mapping[str, Any]) -> TaskSummary:
    estimates = {
        name: _estimate(record.get(name))
        for stem in ("reward", "success", "valid_tool_calls", "keys_per_turn")
        for name in (f"{stem}_before", f"{stem}_after")
    }
    tables = {
        name: {key: e for key, value in (record.get(name) or {}).items() if (e := _estimate(value))}
        for name in ("ablations", "ablations_success", "by_variant_before", "by_variant_after")
    }
    return _typed(TaskSummary, {**record, **estimates, **tables})


def _estimate(value: Any) -> Estimate | None:
    """An estimate from `{mean, se, n}`, or from a bare number (no error known)."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if value.get("mean") is None:
            return None
        se = value.get("se")
        return Estimate(float(value["mean"]), math.nan if se is None else se, value.get("n") or 0)
    return Estimate(float(value), math.nan, 0)
