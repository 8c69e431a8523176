"""Small charts as inline SVG whose colours come from the page's style sheet, light or dark.

Invariant: no style attribute and no script (a strict content policy allows neither); lines differ
by dash and marker as well as by colour; a point that was not measured leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from cua_lab.stats import Estimate

WIDTH, HEIGHT = 340, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 34
MARKERS = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One series; NaN is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] | None = None
    """Half the height of a band around it."""
    look: int = 0
    """Which colour, dash and marker: 0, 1, 2."""
    thin: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart."""

    name: str
    value: Estimate
    look: int = 0


def line_chart(
    lines: Sequence[Line], *, label: str, x_label: str, y_range: tuple[float, float] | None = None
) -> str:
    """An SVG, or a sentence where nothing was measured. `label` is what a screen reader says."""
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if _real(y)]
    if not points:
        return '<p class="missing">not measured</p>'
    low, high = y_range or _padded([*_extremes(lines)])
    frame = _Frame(min(x for x, _ in points), max(x for x, _ in points), low, high)
    parts = [*_grid(frame, x_label)]
    parts += [_band(frame, line) for line in lines if line.half]
    for line in lines:
        parts += _curve(frame, line)
    return _svg(label, WIDTH, HEIGHT, parts)


def bar_chart(bars: Sequence[Bar], *, label: str) -> str:
    """Horizontal bars with their standard errors, values at the right."""
    if not bars:
        return '<p class="missing">not measured</p>'
    name, room, row, height = 128, 150, 26, 26 * len(bars) + 8
    errors = [_error(bar.value) for bar in bars]
    largest = max(bar.value.mean + error for bar, error in zip(bars, errors, strict=True))
    reach = max(largest, 1e-9)

    def at(value: float) -> float:
        return name + room * min(1.0, max(0.0, value / reach))

    parts = [f'<line class="axis" x1="{name}" y1="2" x2="{name}" y2="{height - 4}"/>']
    for index, (bar, error) in enumerate(zip(bars, errors, strict=True)):
        y, middle = 4 + index * row, 13 + index * row
        length = at(bar.value.mean) - name
        box = f'x="{name}" y="{y}" width="{length:.1f}" height="18"'
        parts.append(f'<text class="end" x="{name - 7}" y="{y + 14}">{escape(bar.name)}</text>')
        parts.append(f'<rect class="bar look{bar.look}" {box}/>')
        low, high = at(bar.value.mean - error), at(bar.value.mean + error)
        if error:
            parts.append(f'<path class="error" d="M{low:.1f} {middle}H{high:.1f}"/>')
        said = f"{bar.value.mean:.3f}" + (f" ± {error:.3f}" if error else "")
        parts.append(f'<text x="{name + room + 8}" y="{y + 14}">{said}</text>')
    return _svg(label, name + room + 108, height, parts)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers inside [low, high], some `about` of them."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The data ranges, and where they lie on the picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        span = self.x1 - self.x0 or 1.0
        return LEFT + (value - self.x0) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        inside = min(max(value, self.y0), self.y1)
        return TOP + (self.y1 - inside) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)


def _grid(frame: _Frame, x_label: str) -> Iterator[str]:
    for value in ticks(frame.y0, frame.y1):
        y = frame.y(value)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 4:.1f}">{value:g}</text>'
    for value in ticks(frame.x0, max(frame.x1, frame.x0 + 1)):
        if value <= frame.x1 and value == int(value):  # steps are whole
            x, y = frame.x(value), HEIGHT - BOTTOM + 15
            yield f'<text class="middle" x="{x:.1f}" y="{y}">{value:g}</text>'
    base = HEIGHT - BOTTOM
    yield f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}"/>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="middle" x="{middle}" y="{HEIGHT - 4}">{escape(x_label)}</text>'


def _band(frame: _Frame, line: Line) -> str:
    rows = [r for r in zip(line.x, line.y, line.half or (), strict=True) if all(map(_real, r))]
    upper = [f"{frame.x(x):.1f},{frame.y(y + h):.1f}" for x, y, h in rows]
    lower = [f"{frame.x(x):.1f},{frame.y(y - h):.1f}" for x, y, h in reversed(rows)]
    return f'<polygon class="band look{line.look}" points="{" ".join(upper + lower)}"/>'


def _curve(frame: _Frame, line: Line) -> Iterator[str]:
    pairs = list(zip(line.x, line.y, strict=True))
    kind = "thin" if line.thin else "line"
    for measured, run in groupby(pairs, key=lambda pair: _real(pair[1])):
        if measured:
            path = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in run)
            yield f'<path class="{kind} look{line.look}" d="M{path}"/>'
    if line.thin:
        return
    known = [pair for pair in pairs if _real(pair[1])]
    shown = dict.fromkeys([*known[:: max(1, len(known) // MARKERS)], *known[-1:]])
    for x, y in shown:
        tip = f"<title>{escape(line.name)}, {x:g}: {y:.4g}</title>"
        yield _marker(frame.x(x), frame.y(y), line.look, tip)


def _marker(x: float, y: float, look: int, tip: str) -> str:
    if look == 0:
        return f'<circle class="mark look0" cx="{x:.1f}" cy="{y:.1f}" r="3.4">{tip}</circle>'
    if look == 1:
        at = f'x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4"'
        return f'<rect class="mark look1" {at}>{tip}</rect>'
    path = f"M{x:.1f} {y - 4:.1f}l4 7h-8z"
    return f'<path class="mark look2" d="{path}">{tip}</path>'


def _extremes(lines: Sequence[Line]) -> Iterator[float]:
    for line in lines:
        for index, y in enumerate(line.y):
            half = line.half[index] if line.half and _real(line.half[index]) else 0.0
            if _real(y):
                yield from (y - half, y + half)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def _svg(label: str, width: float, height: float, parts: Sequence[str]) -> str:
    inside = "".join(parts)
    return (
        f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' aria-label="{escape(label, quote=True)}">{inside}</svg>'
    )


def _error(estimate: Estimate) -> float:
    return estimate.se if _real(estimate.se) else 0.0


def _real(value: float) -> bool:
    return math.isfinite(value)
