"""Pieces of the report: numbers in words, tables, film strips as markup.

Invariant: `MISSING` stands wherever a run did not measure something; every text that comes from a
run is escaped here. Cells given to `table` are trusted markup, made by these functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from cua_lab.records import EpisodeRow
from cua_lab.stats import Estimate
from cua_lab.viz.filmstrip import thought_lines
from cua_lab.viz.frames import Frame, key_summary, png_uri
from cua_lab.viz.runfiles import AFTERWARDS, Run, episode_frames

MISSING = '<span class="missing">not measured</span>'
STRIP_FRAMES = 6
STRIP_PAIRS = 2
"""Start states of a task with several turns: a strip before and one after for each."""
PHASES = (("eval_before", "After the warm-up"), ("eval_after", "After GRPO"))


def shown(estimate: Estimate | None) -> str:
    """`0.843 ± 0.023 (n = 256)`, as much of it as is known."""
    if estimate is None:
        return MISSING
    error = f" ± {estimate.se:.3f}" if math.isfinite(estimate.se) else ""
    return f"{estimate.mean:.3f}{error}" + (f" (n = {estimate.n})" if estimate.n else "")


def number(value: float | None, unit: str = "", digits: int = 1, *, exponent: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:.1e}" if exponent else f"{value:,.{digits}f}"
    return f"{text} {unit}".strip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column names the row."""
    heads = "".join(f'<th{_right(i)} scope="col">{cell}</th>' for i, cell in enumerate(head))
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f'<td class="n">{cell}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    thead = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>{thead}<tbody>{body}</tbody></table></div>'


def figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def nested(head: str, facts: Mapping[str, Any], digits: int = 0) -> str:
    """A two-column table of numbers, one level of nesting spelt out."""
    rows = [[name, number(value, digits=digits)] for name, value in _flat(facts)]
    return table([head, ""], rows) if rows else f"<p>{escape(head)}: {MISSING}</p>"


def ledger(tokens: Mapping[str, Any]) -> str:
    """Where every sampled token went, and whether the account closes."""
    if not tokens:
        return f"<p>token ledger: {MISSING}</p>"
    body = nested("token ledger", tokens)
    parts = [value for name, value in _flat(tokens) if name != "sampled" and name != "context"]
    if "sampled" in tokens and sum(parts) == tokens["sampled"]:
        body += "<p>trained + masked + resynced + dropped = sampled.</p>"
    return body


def strips(run: Run, task: str) -> str:
    """Film strips of the same start states before and after: those first that were missed before
    and hit after. One-turn episodes share a strip."""
    before, after = ({e.episode: e for e in run.pictured(task, phase)} for phase, _ in PHASES)
    if not before.keys() & after.keys():
        return _half(run, before, after)
    pairs = [(before[name], after[name]) for name in before if name in after]
    chosen = sorted(pairs, key=_teaches)  # stable: the order of the run among equals
    blocks = [_told(run, task)]
    if all(len(e.turns) == 1 for pair in pairs for e in pair):
        shown_pairs = chosen[:STRIP_FRAMES]
        for index, (_, title) in enumerate(PHASES):
            frames = [
                (episode_frames(run, pair[index])[0], _outcome(pair[index])) for pair in shown_pairs
            ]
            blocks.append(_strip(f"{title}, {len(frames)} episodes", frames))
    else:
        for number, pair in enumerate(chosen[:STRIP_PAIRS], 1):
            for (_, title), episode in zip(PHASES, pair, strict=True):
                frames = list(_turn_notes(episode_frames(run, episode)))
                blocks.append(
                    _strip(
                        f"Start {number}, {title[0].lower()}{title[1:]}: {_outcome(episode)}",
                        frames,
                    )
                )
    return "".join(blocks)


def _half(
    run: Run,
    before: Mapping[str | None, EpisodeRow],
    after: Mapping[str | None, EpisodeRow],
) -> str:
    """What a run shows that has not ended."""
    blocks = []
    for (_, title), episodes in zip(PHASES, (before, after), strict=True):
        blocks += [] if episodes else [f"<p>{title}: {MISSING}</p>"]
        for episode in list(episodes.values())[:2]:
            frames = list(_turn_notes(episode_frames(run, episode)))
            blocks.append(_strip(f"{title}: {_outcome(episode)}", frames))
    return "".join(blocks)


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


def _told(run: Run, task: str) -> str:
    """How many of each kind there are, over all fresh episodes and not those with pictures."""
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
            f"<p>Of {len(both)} starts {better} earned more after GRPO than before, {worse} less"
            f" and {len(both) - better - worse} the same; those are shown that gained most.</p>"
        )
    kinds = {
        pair: hits.count(pair)
        for pair in ((False, True), (True, False), (True, True), (False, False))
    }
    return (
        f"<p>Of {len(hits)} starts {kinds[False, True]} were missed before GRPO and hit after,"
        f" {kinds[True, False]} the other way round, {kinds[True, True]} hit both times and"
        f" {kinds[False, False]} missed both times. Those that were missed and then hit are shown"
        " first.</p>"
    )


def _outcome(episode: EpisodeRow) -> str:
    reward = "no reward" if episode.reward is None else f"reward {episode.reward:.2f}"
    if episode.success is None:
        return reward
    return f"{reward}, {'success' if episode.success else 'no success'}"


def _strip(title: str, frames: Sequence[tuple[Frame, str]]) -> str:
    more = len(frames) - STRIP_FRAMES
    items = "".join(f"<li>{_cell(*pair)}</li>" for pair in frames[:STRIP_FRAMES])
    rest = f"<p>… and {more} more.</p>" if more > 0 else ""
    return f'<p><b>{escape(title)}</b></p><ol class="strip">{items}</ol>{rest}'


def _cell(frame: Frame, note: str) -> str:
    action = f"press {key_summary(frame.keys)}" if frame.keys else frame.label or "no action"
    if frame.label == AFTERWARDS:
        action = "and then"
    said = f"{_said(frame)}{escape(action)}<br>{escape(note)}"
    width, height = frame.image.size
    alt = escape(f"screenshot; {action}", quote=True)
    picture = f'<img src="{png_uri(frame.image)}" alt="{alt}" width="{width}" height="{height}">'
    mark = _cross(frame.point, width, height) if frame.point else ""
    return figure(f'<div class="shot">{picture}{mark}</div>', said)


def _said(frame: Frame) -> str:
    """The thought, a line for each row of the screen; a misread cell is marked, with what is there
    behind it."""
    if not frame.thought:
        return ""
    there = dict(frame.misread)
    lines = (
        "".join(
            f"<mark>{escape(character)}<small>({escape(there[at])})</small></mark>"
            if at in there
            else escape(character)
            for at, character in line
        )
        for line in thought_lines(frame.thought)
    )
    return f'<code class="thought">{"<br>".join(lines)}</code>'


def _cross(point: tuple[float, float], width: int, height: int) -> str:
    x, y, r = point[0] * width, point[1] * height, max(width, height) * 0.045
    path = (
        f"M{x - 2 * r:.1f} {y:.1f}H{x - r / 2:.1f}M{x + r / 2:.1f} {y:.1f}H{x + 2 * r:.1f}"
        f"M{x:.1f} {y - 2 * r:.1f}V{y - r / 2:.1f}M{x:.1f} {y + r / 2:.1f}V{y + 2 * r:.1f}"
    )
    layers = "".join(
        f'<path class="{layer}" d="{path}"/>'
        f'<circle class="{layer}" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
        for layer in ("halo", "cross")
    )
    return f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{layers}</svg>'


def _flat(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat += [(f"{name} {inner}", number) for inner, number in value.items()]
        else:
            flat.append((name.replace("_", " "), value))
    return flat


def _right(column: int) -> str:
    return "" if column == 0 else ' class="n"'
