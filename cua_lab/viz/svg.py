"""Small charts as the numbers of an inline SVG; `static/charts.html.jinja` writes them.

Colours come from the page's style sheet, light or dark. Invariant: no style attribute and no script
(a strict content policy allows neither); lines differ by dash and marker as well as by colour; a
point that was not measured leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from cua_lab.stats import Estimate

WIDTH, HEIGHT = 340, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 34
MARKERS = 8
NAMES, ROOM, VALUES, ROW = 128, 150, 108, 26
"""Of a bar chart: widths of its names, its bars and its values, and the height of a bar's row."""

Point = tuple[float, float]


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


@dataclass(frozen=True, slots=True)
class Tick:
    """A number beside an axis; `at` is in the picture's pixels."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A measured point with what a pointer over it says."""

    x: float
    y: float
    tip: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One line in the picture's pixels."""

    look: int
    thin: bool
    pieces: tuple[tuple[Point, ...], ...]
    """Runs of measured points."""
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """The area around a line: its corners, there along the top and back along the bottom."""

    look: int
    corners: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line chart, ready to be written."""

    label: str
    """What a screen reader says."""
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    bands: tuple[Band, ...]
    curves: tuple[Curve, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    base: int = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """One bar in the picture's pixels."""

    name: str
    look: int
    y: int
    length: float
    error: tuple[float, float] | None
    """The ends of its error line; `None` where no error is known."""
    said: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars, ready to be written."""

    label: str
    bars: tuple[DrawnBar, ...]
    height: int
    left: int = NAMES
    right: int = NAMES + ROOM
    width: int = NAMES + ROOM + VALUES


def line_chart(
    lines: Sequence[Line], *, label: str, x_label: str, y_range: tuple[float, float] | None = None
) -> LineChart | None:
    """A chart, or `None` where nothing was measured. `label` is what a screen reader says."""
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if _real(y)]
    if not points:
        return None
    low, high = y_range or _padded([*_extremes(lines)])
    frame = _Frame(min(x for x, _ in points), max(x for x, _ in points), low, high)
    return LineChart(
        label=label,
        x_label=x_label,
        x_ticks=tuple(
            Tick(frame.x(value), f"{value:g}")
            for value in ticks(frame.x0, max(frame.x1, frame.x0 + 1))
            if value <= frame.x1 and value == int(value)  # steps are whole
        ),
        y_ticks=tuple(Tick(frame.y(value), f"{value:g}") for value in ticks(frame.y0, frame.y1)),
        bands=tuple(_band(frame, line) for line in lines if line.half),
        curves=tuple(_curve(frame, line) for line in lines),
    )


def bar_chart(bars: Sequence[Bar], *, label: str) -> BarChart | None:
    """Horizontal bars with their standard errors, values at the right; `None` without any."""
    if not bars:
        return None
    errors = [_error(bar.value) for bar in bars]
    largest = max(bar.value.mean + error for bar, error in zip(bars, errors, strict=True))
    reach = max(largest, 1e-9)

    def at(value: float) -> float:
        return NAMES + ROOM * min(1.0, max(0.0, value / reach))

    drawn = tuple(
        DrawnBar(
            name=bar.name,
            look=bar.look,
            y=4 + index * ROW,
            length=at(bar.value.mean) - NAMES,
            error=(at(bar.value.mean - error), at(bar.value.mean + error)) if error else None,
            said=f"{bar.value.mean:.3f}" + (f" ± {error:.3f}" if error else ""),
        )
        for index, (bar, error) in enumerate(zip(bars, errors, strict=True))
    )
    return BarChart(label, drawn, height=ROW * len(bars) + 8)


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

    def point(self, x: float, y: float) -> Point:
        return self.x(x), self.y(y)


def _band(frame: _Frame, line: Line) -> Band:
    rows = [r for r in zip(line.x, line.y, line.half or (), strict=True) if all(map(_real, r))]
    upper = [frame.point(x, y + h) for x, y, h in rows]
    lower = [frame.point(x, y - h) for x, y, h in reversed(rows)]
    return Band(line.look, tuple(upper + lower))


def _curve(frame: _Frame, line: Line) -> Curve:
    pairs = list(zip(line.x, line.y, strict=True))
    pieces = tuple(
        tuple(frame.point(x, y) for x, y in run)
        for measured, run in groupby(pairs, key=lambda pair: _real(pair[1]))
        if measured
    )
    known = [] if line.thin else [pair for pair in pairs if _real(pair[1])]
    marked = dict.fromkeys([*known[:: max(1, len(known) // MARKERS)], *known[-1:]])
    marks = tuple(Mark(*frame.point(x, y), tip=f"{line.name}, {x:g}: {y:.4g}") for x, y in marked)
    return Curve(line.look, line.thin, pieces, marks)


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


def _error(estimate: Estimate) -> float:
    return estimate.se if _real(estimate.se) else 0.0


def _real(value: float) -> bool:
    return math.isfinite(value)
