"""Pieces of the report: numbers in words, tables, film strips as markup.

Invariant: `MISSING` stands wherever a run did not measure something; every text that comes from a
run is escaped here. Cells given to `table` are trusted markup, made by these functions.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cua_lab.records import EpisodeRow
from cua_lab.stats import Estimate
from cua_lab.viz.frames import Frame, key_summary, png_uri
from cua_lab.viz.runfiles import Run, episode_frames

MISSING = '<span class="missing">not measured</span>'
STRIP_FRAMES = 6
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
    """Film strips before and after; one-turn episodes share a strip."""
    blocks = []
    for phase, title in PHASES:
        episodes = run.pictured(task, phase)
        if not episodes:
            blocks.append(f"<p>{title}: {MISSING}</p>")
        elif all(len(e.turns) == 1 for e in episodes):
            frames = [(frame, _outcome(e)) for e in episodes for frame in episode_frames(run, e)]
            blocks.append(_strip(f"{title}, {len(frames[:STRIP_FRAMES])} episodes", frames))
        else:
            for e in episodes[:2]:
                frames = [(frame, f"turn {i}") for i, frame in enumerate(episode_frames(run, e))]
                blocks.append(_strip(f"{title}: {_outcome(e)}", frames))
    return "".join(blocks)


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
    said = f"{escape(action)}<br>{escape(note)}"
    width, height = frame.image.size
    alt = escape(f"screenshot; {action}", quote=True)
    picture = f'<img src="{png_uri(frame.image)}" alt="{alt}" width="{width}" height="{height}">'
    mark = _cross(frame.point, width, height) if frame.point else ""
    return figure(f'<div class="shot">{picture}{mark}</div>', said)


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
