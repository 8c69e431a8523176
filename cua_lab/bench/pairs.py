"""Ours beside a peer: the two take turns in one process, so that a busy machine slows both.

Data model: a part of the bench is `Measured`: `Pair`s (ours and one peer on the same work) and
`Growth`s (ours on more and more of it). `interleaved` measures `ways` by name, the first of which
is ours, after one round that does not count. Invariant: a ratio is of medians that were measured in
the same rounds, and each figure stands beside its spread.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any, Literal

Clock = Literal["CPU", "wall"]
CLOCKS: Mapping[Clock, Callable[[], float]] = {"CPU": process_time, "wall": perf_counter}
"""CPU time of all threads is what a busy machine changes least; the wall is for what waits."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One way of doing it, over all rounds."""

    name: str
    each_ms: tuple[float, ...]

    @property
    def ms(self) -> float:
        return median(self.each_ms)

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, as a share of the median."""
        if len(self.each_ms) < 2:
            return 0.0
        low, _, high = quantiles(self.each_ms, n=4)
        return (high - low) / 2 / self.ms

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "ms": self.ms, "spread": self.spread}


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours beside one peer."""

    part: str
    what: str
    """The work, which both do: "1280x1200 to 512 wide"."""
    ours: Timing
    peer: Timing
    note: str = ""
    """What else was found, such as whether the results are equal."""
    clock: Clock = "CPU"
    limit: str = ""
    """What the machine must do at the least for this work: "one PNG at level 1"."""
    limit_ms: float | None = None
    """How long that takes here."""
    why: str = ""
    """Where the difference comes from."""

    @property
    def times(self) -> float:
        """How many times faster ours is."""
        return self.peer.ms / self.ours.ms

    @property
    def reached(self) -> float | None:
        """Which share of ours is what the machine must do at the least."""
        return None if self.limit_ms is None else self.limit_ms / self.ours.ms

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "part": self.part,
            "what": self.what,
            "clock": self.clock,
            "ours": self.ours.record(),
            "peer": self.peer.record(),
            "times": self.times,
            "rounds": len(self.ours.each_ms),
            "limit": self.limit,
            "limit_ms": self.limit_ms,
            "reached": self.reached,
            "note": self.note,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Growth:
    """Ours on more and more of the work: time grows as size to the power of `exponent`."""

    part: str
    what: str
    """What the sizes count: "turns"."""
    sizes: tuple[int, ...]
    each_ms: tuple[float, ...]
    """Medians, one for each size."""

    @property
    def exponent(self) -> float:
        """The slope of log time over log size, by least squares; 1 is proportional."""
        xs = [math.log(size) for size in self.sizes]
        ys = [math.log(ms) for ms in self.each_ms]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum(
            (a - x) ** 2 for a in xs
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "exponent": self.exponent}


@dataclass(frozen=True, slots=True)
class Measured:
    """What a part of the bench found."""

    pairs: Sequence[Pair]
    growth: Sequence[Growth] = ()


Way = Callable[[], Awaitable[Any]]


async def interleaved(
    ways: Mapping[str, Way], *, rounds: int, clock: Clock = "CPU", warm_up: bool = True
) -> dict[str, Timing]:
    """Each way once a round, one round to warm up (which processes of their own do not need) and
    `rounds` that count."""
    now = CLOCKS[clock]
    times: dict[str, list[float]] = {name: [] for name in ways}
    for counted in [False] * warm_up + [True] * rounds:
        for name, way in ways.items():
            began = now()
            await way()
            if counted:
                times[name].append((now() - began) * 1e3)
    return {name: Timing(name, tuple(each)) for name, each in times.items()}


async def growing(part: str, what: str, ways: Mapping[int, Way], *, rounds: int) -> Growth:
    """Ours at each size, the sizes taking turns."""
    found = await interleaved({str(size): way for size, way in ways.items()}, rounds=rounds)
    return Growth(part, what, tuple(ways), tuple(timing.ms for timing in found.values()))


def pairs_of(part: str, what: str, timings: Mapping[str, Timing], **more: Any) -> list[Pair]:
    """The first way beside each of the others; `more` are fields of `Pair`."""
    ours, *peers = timings.values()
    return [Pair(part, what, ours, peer, **more) for peer in peers]


def markdown(pairs: Sequence[Pair], growth: Sequence[Growth] = ()) -> str:
    """Tables for a page, and a line of reasons for each part."""
    rows = [
        f"| {p.part} | {p.what} | {p.ours.name} | {p.ours.ms:.2f} ± {p.ours.spread:.0%} |"
        f" {p.peer.name} | {p.peer.ms:.2f} ± {p.peer.spread:.0%} | {p.times:.2f}x |"
        f" {_limit(p)} | {'; '.join(filter(None, (_clock(p), p.note)))} |"
        for p in pairs
    ]
    head = (
        "| part | work | ours | ms | peer | ms | faster | limit, and share of it reached | |\n"
        "|---|---|---|---:|---|---:|---:|---|---|"
    )
    reasons = dict.fromkeys((p.part, p.why) for p in pairs if p.why)
    text = "\n".join([head, *rows, "", *(f"- **{part}**: {why}" for part, why in reasons)])
    return text + ("\n\n" + _growth_table(growth) if growth else "")


def _limit(pair: Pair) -> str:
    if pair.limit_ms is None or pair.reached is None:
        return "-"
    return f"{pair.limit}: {pair.limit_ms:.3g} ms, {pair.reached:.0%}"


def _clock(pair: Pair) -> str:
    return "" if pair.clock == "CPU" else f"{pair.clock} time"


def _growth_table(growth: Sequence[Growth]) -> str:
    rows = [
        f"| {g.part} | {g.what} | {', '.join(map(str, g.sizes))} |"
        f" {', '.join(f'{ms:.2f}' for ms in g.each_ms)} | {g.exponent:.2f} |"
        for g in growth
    ]
    return "\n".join(
        ["| part | grows with | sizes | CPU-ms | exponent |", "|---|---|---|---|---:|", *rows]
    )
