"""Film strips of the report: the same start states before and after, as values for its templates.

Invariant: which episodes are shown, and in which order, is a function of the run's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cua_lab.records import EpisodeRow
from cua_lab.viz.filmstrip import thought_lines
from cua_lab.viz.frames import Frame, key_summary, png_uri
from cua_lab.viz.runfiles import AFTERWARDS, Run, episode_frames

STRIP_FRAMES = 6
STRIP_PAIRS = 2
"""Start states of a task with several turns: a strip before and one after for each."""
PHASES = (("eval_before", "After the warm-up"), ("eval_after", "After GRPO"))


@dataclass(frozen=True, slots=True)
class Character:
    """One character of a thought; `there` is what the screen says where it misread it."""

    text: str
    there: str | None


@dataclass(frozen=True, slots=True)
class Shot:
    """One screenshot with what was done at it."""

    source: str
    """The picture as a `data:` address."""
    width: int
    height: int
    cross: tuple[float, float, float] | None
    """Where it clicked: x, y and the mark's radius, in the picture's pixels."""
    action: str
    note: str
    thought: tuple[tuple[Character, ...], ...]
    """A line for each row of the screen that it said."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Screenshots in a row; without any the page says that there is none."""

    title: str
    shots: tuple[Shot, ...] = ()
    more: int = 0
    """Screenshots that are left out at the end."""


def strips(run: Run, task: str) -> list[Strip]:
    """Film strips of the same start states before and after: those first that were missed before
    and hit after. One-turn episodes share a strip."""
    before, after = ({e.episode: e for e in run.pictured(task, phase)} for phase, _ in PHASES)
    if not before.keys() & after.keys():
        return list(_half(run, before, after))
    pairs = [(before[name], after[name]) for name in before if name in after]
    chosen = sorted(pairs, key=_teaches)  # stable: the order of the run among equals
    if all(len(e.turns) == 1 for pair in pairs for e in pair):
        return list(_one_turn(run, chosen[:STRIP_FRAMES]))
    return [
        episode_strip(
            run, episode, f"Start {index}, {title[0].lower()}{title[1:]}: {outcome(episode)}"
        )
        for index, pair in enumerate(chosen[:STRIP_PAIRS], 1)
        for (_, title), episode in zip(PHASES, pair, strict=True)
    ]


def episode_strip(run: Run, episode: EpisodeRow, title: str, most: int = STRIP_FRAMES) -> Strip:
    """An episode's first `most` screenshots."""
    return _strip(title, list(_turn_notes(episode_frames(run, episode))), most)


def strip_of(title: str, frames: Sequence[Frame]) -> Strip:
    """These frames as one episode's."""
    return _strip(title, list(_turn_notes(frames)))


def _one_turn(run: Run, pairs: Sequence[tuple[EpisodeRow, EpisodeRow]]) -> Iterator[Strip]:
    for index, (_, title) in enumerate(PHASES):
        frames = [(episode_frames(run, pair[index])[0], outcome(pair[index])) for pair in pairs]
        yield _strip(f"{title}, {len(frames)} episodes", frames)


def _half(
    run: Run,
    before: Mapping[str | None, EpisodeRow],
    after: Mapping[str | None, EpisodeRow],
) -> Iterator[Strip]:
    """What a run shows that has not ended."""
    for (_, title), episodes in zip(PHASES, (before, after), strict=True):
        if not episodes:
            yield Strip(title)
        for episode in list(episodes.values())[:2]:
            yield episode_strip(run, episode, f"{title}: {outcome(episode)}")


def _turn_notes(frames: Sequence[Frame]) -> Iterator[tuple[Frame, str]]:
    for index, frame in enumerate(frames):
        yield frame, "" if frame.label == AFTERWARDS else f"turn {index}"


def _value(episode: EpisodeRow) -> float:
    """Success where there is one, else the reward."""
    if episode.success is not None:
        return float(episode.success)
    return 0.0 if episode.reward is None else episode.reward


def _teaches(pair: tuple[EpisodeRow, EpisodeRow]) -> tuple[bool, float]:
    """Gained most first; a pair that lost stands before one that stayed the same."""
    gain = _value(pair[1]) - _value(pair[0])
    return gain <= 0, -abs(gain)


def told(run: Run, task: str) -> str:
    """How many of each kind there are, over all fresh episodes and not those with pictures; empty
    where none is pictured both before and after."""
    pictured = [{e.episode for e in run.pictured(task, phase)} for phase, _ in PHASES]
    if not pictured[0] & pictured[1]:
        return ""
    before, after = (
        {e.episode: e for e in run.episodes if e.task == task and e.phase == phase}
        for phase, _ in PHASES
    )
    both = [(before[name], after[name]) for name in before if name in after]
    hits = [
        (bool(b.success), bool(a.success)) for b, a in both if None not in (b.success, a.success)
    ]
    if not hits:
        better = sum(_value(a) > _value(b) for b, a in both)
        worse = sum(_value(a) < _value(b) for b, a in both)
        return (
            f"Of {len(both)} starts {better} earned more after GRPO than before, {worse} less"
            f" and {len(both) - better - worse} the same; those are shown that gained most."
        )
    kinds = {
        pair: hits.count(pair)
        for pair in ((False, True), (True, False), (True, True), (False, False))
    }
    return (
        f"Of {len(hits)} starts {kinds[False, True]} were missed before GRPO and hit after,"
        f" {kinds[True, False]} the other way round, {kinds[True, True]} hit both times and"
        f" {kinds[False, False]} missed both times. Those that were missed and then hit are shown"
        " first."
    )


def outcome(episode: EpisodeRow) -> str:
    """`reward 0.84, success`."""
    reward = "no reward" if episode.reward is None else f"reward {episode.reward:.2f}"
    if episode.success is None:
        return reward
    return f"{reward}, {'success' if episode.success else 'no success'}"


def _strip(title: str, frames: Sequence[tuple[Frame, str]], most: int = STRIP_FRAMES) -> Strip:
    shots = tuple(_shot(frame, note) for frame, note in frames[:most])
    return Strip(title, shots, more=max(0, len(frames) - most))


def _shot(frame: Frame, note: str) -> Shot:
    action = f"press {key_summary(frame.keys)}" if frame.keys else frame.label or "no action"
    width, height = frame.image.size
    return Shot(
        source=png_uri(frame.image),
        width=width,
        height=height,
        cross=_cross(frame.point, width, height) if frame.point else None,
        action="and then" if frame.label == AFTERWARDS else action,
        note=note,
        thought=_said(frame),
    )


def _said(frame: Frame) -> tuple[tuple[Character, ...], ...]:
    """The thought, a line for each row of the screen."""
    there = dict(frame.misread)
    return tuple(
        tuple(Character(character, there.get(at)) for at, character in line)
        for line in thought_lines(frame.thought)
    )


def _cross(point: tuple[float, float], width: int, height: int) -> tuple[float, float, float]:
    return point[0] * width, point[1] * height, max(width, height) * 0.045
