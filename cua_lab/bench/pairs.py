"""Ours beside a peer: the two take turns in one process, so that a busy machine slows both.

Data model: a part gives `Pair`s; `interleaved` measures `ways` by name, the first of which is ours,
after one round that does not count. Invariant: a ratio is of medians that were measured in the same
rounds, and each figure stands beside its spread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import Any


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

    @property
    def times(self) -> float:
        """How many times faster ours is."""
        return self.peer.ms / self.ours.ms

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "part": self.part,
            "what": self.what,
            "ours": {"name": self.ours.name, "ms": self.ours.ms, "spread": self.ours.spread},
            "peer": {"name": self.peer.name, "ms": self.peer.ms, "spread": self.peer.spread},
            "times": self.times,
            "rounds": len(self.ours.each_ms),
            "note": self.note,
        }


async def interleaved(
    ways: Mapping[str, Callable[[], Awaitable[Any]]], *, rounds: int
) -> dict[str, Timing]:
    """Each way once a round, one round to warm up and `rounds` that count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for counted in [False] + [True] * rounds:
        for name, way in ways.items():
            began = perf_counter()
            await way()
            if counted:
                times[name].append((perf_counter() - began) * 1e3)
    return {name: Timing(name, tuple(each)) for name, each in times.items()}


def pairs_of(part: str, what: str, timings: Mapping[str, Timing], note: str = "") -> list[Pair]:
    """The first way beside each of the others."""
    ours, *peers = timings.values()
    return [Pair(part, what, ours, peer, note) for peer in peers]


def markdown(pairs: Sequence[Pair]) -> str:
    """A table for a page."""
    rows = [
        f"| {p.part} | {p.what} | {p.ours.name} | {p.ours.ms:.2f} ± {p.ours.spread:.0%} |"
        f" {p.peer.name} | {p.peer.ms:.2f} ± {p.peer.spread:.0%} | {p.times:.1f}x | {p.note} |"
        for p in pairs
    ]
    head = (
        "| part | work | ours | ms | peer | ms | faster | |\n|---|---|---|---:|---|---:|---:|---|"
    )
    return "\n".join([head, *rows])
