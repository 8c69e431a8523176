"""Pack a run's folder: what a lesson reads of it, in one or two megabytes.

Invariant: a field is kept whole or left out, and a line that is kept holds the run's own values.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from cua_lab.errors import LabError
from cua_lab.files import write_bytes, write_text
from cua_lab.records import EpisodeRow, episode_row_record, step_record
from cua_lab.viz.runfiles import Run, read_run

WHOLE = ("config.yaml", "summary.json", "viewer.json", "timings.jsonl")
PICTURED = 8
"""Episodes of a task and phase whose screenshots are kept."""
MOST_BYTES = 2_500_000
ABLATED = "ablation_"


def pack(source: Path, target: Path) -> int:
    """Write `target`, a new folder in place of an old one; its size in bytes."""
    run = read_run(source)
    if run.summary is None:
        raise LabError(f"{source} has no summary.json: pack a run that has ended")
    episodes = list(_slim(run))
    files = {name: source / name for name in WHOLE if (source / name).exists()}
    files |= {frame: source / frame for e in episodes for frame in _frames(e)}
    if target.exists():
        shutil.rmtree(target)
    for name, path in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target / name, path.read_bytes())
    write_text(target / "metrics.jsonl", _lines(step_record(step) for step in run.steps))
    write_text(target / "episodes.jsonl", _lines(episode_row_record(e) for e in episodes))
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise LabError(f"{target} has {size} bytes, more than the {MOST_BYTES} of a packed run")
    return size


def _lines(records: Iterator[Mapping[str, object]]) -> str:
    return "".join(json.dumps(_trimmed(r), separators=(",", ":")) + "\n" for r in records)


def _trimmed(value: object) -> object:
    """Without what is absent (it is read as absent again), floats to six digits."""
    if isinstance(value, Mapping):
        return {k: _trimmed(v) for k, v in value.items() if v is not None and v not in ("", [])}
    if isinstance(value, (list, tuple)):
        return [_trimmed(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _slim(run: Run) -> Iterator[EpisodeRow]:
    """Evaluations with what was done; of training the first, the middle and the last step; of
    ablations the grade alone."""
    kept: dict[tuple[str, str], int] = {}
    shown = _shown(run)
    for episode in run.episodes:
        place = (episode.task, episode.phase)
        pictured = episode.pictured and (episode.task, episode.episode) in shown
        pictured = pictured and kept.get(place, 0) < PICTURED
        kept[place] = kept.get(place, 0) + pictured
        if pictured:
            yield episode
        elif episode.phase.startswith("eval"):
            turns = tuple(replace(turn, text="", frame=None) for turn in episode.turns)
            yield replace(episode, turns=turns, end=None)
        elif episode.phase.startswith(ABLATED) or episode.step in _steps(run, episode.task):
            yield replace(episode, turns=(), end=None)


def _shown(run: Run) -> set[tuple[str, str | None]]:
    """The starts of each task that are pictured before and after; all, where it has no pairs."""
    shown: set[tuple[str, str | None]] = set()
    for task in {e.task for e in run.episodes}:
        phases = [
            {e.episode for e in run.pictured(task, phase)}
            for phase in ("eval_before", "eval_after")
        ]
        shown |= {(task, name) for name in (phases[0] & phases[1] or phases[0] | phases[1])}
    return shown


def _steps(run: Run, task: str) -> tuple[int, ...]:
    steps = [step.step for step in run.grpo(task)]
    return (steps[0], steps[len(steps) // 2], steps[-1]) if steps else ()


def _frames(episode: EpisodeRow) -> Iterator[str]:
    yield from (turn.frame for turn in episode.turns if turn.frame)
    if episode.end:
        yield episode.end
