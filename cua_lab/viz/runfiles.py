"""A run's folder, read back: what `cua_lab.run` writes and every picture starts from.

    config.yaml     the recipe as it ran (shown as text)
    metrics.jsonl   one `Step` a line
    episodes.jsonl  one `EpisodeRow` a line; a few have screenshots under frames/
    summary.json    `Summary`, once the run has ended
    viewer.json     optional: the mask viewer's payload (`viewer_payload`) of one episode

What a line holds is `cua_lab.records`.

Invariant: missing is not zero. Every field that a run may not have measured is `None`, an absent
file is an empty reading, and the torn last line of a file that is being written is left out, so a
live run can be drawn at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb
from cua_lab.records import (
    EpisodeRow,
    Step,
    Summary,
    make_step,
    read_episode,
    read_json,
    read_lines,
    read_summary,
)
from cua_lab.viz.frames import Frame

AFTERWARDS = "afterwards"
"""Under the screen that the last action led to."""


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
        """In the order the run met them, but those come first that say what they read, and then
        the one that proves vision."""
        named = [step.task for step in self.steps] + [e.task for e in self.episodes]
        summarised = list(self.summary.tasks) if self.summary else []
        met = dict.fromkeys(summarised + named)
        return tuple(
            sorted(met, key=lambda task: (not self.reads(task), not task.startswith("targets")))
        )

    def reads(self, task: str) -> bool:
        """Whether the policy says what is on the screen before it acts."""
        return any(step.screens_read is not None for step in self.steps if step.task == task)

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
        steps=tuple(make_step(line) for line in read_lines(path / "metrics.jsonl")),
        episodes=tuple(read_episode(line) for line in read_lines(path / "episodes.jsonl")),
        summary=read_summary(summary) if summary.exists() else None,
        config=config.read_text(encoding="utf-8-sig") if config.exists() else "",
        viewer=read_json(viewer) if viewer.exists() else None,
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
        frame = Frame.of(picture, action, coordinate_space=coordinate_space)
        frames.append(frame.thinking(turn.thought, turn.reading))
    if frames and episode.end is not None:
        frames.append(Frame(open_rgb(run.path / episode.end), label=AFTERWARDS))
    return tuple(frames)
