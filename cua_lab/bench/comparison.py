"""What `cua-lab bench` found, as a page and as JSON.

Invariant: figures never stand without the machine that they were measured on and its limits.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cua_lab import files
from cua_lab.bench.machine_limits import Limits, limits
from cua_lab.bench.pairs import Growth, Measured, Pair, markdown
from cua_lab.bench.parts import ON_REQUEST, PARTS
from cua_lab.errors import LabError
from cua_lab.run.job import machine, versions

EVERY = "all"
"""Names every part."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs, and what they were measured on."""

    pairs: tuple[Pair, ...]
    growth: tuple[Growth, ...]
    limits: Limits
    machine: dict[str, Any]
    versions: dict[str, str]
    load: float | None = None
    """Processes that wanted a core while it was measured, the mean over a minute."""

    def markdown(self) -> str:
        """The page."""
        m, top = self.machine, self.limits
        busy = "" if self.load is None else f", load {self.load:.0f}"
        return (
            f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, one thread{busy}; torch"
            f" {self.versions['torch']}, Python {self.versions['python']}. Limits:"
            f" {top.gflops:.0f} GFLOP/s, {top.gib_per_s:.1f} GiB/s,"
            f" {top.loopback_ms:.3f} ms a loopback round trip, {top.png_ms:.1f} ms a PNG of"
            " 1280x1200 at level 1.\n\n" + markdown(self.pairs, self.growth)
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "load": self.load,
            "limits": asdict(self.limits),
            "pairs": [pair.record() for pair in self.pairs],
            "growth": [growth.record() for growth in self.growth],
        }


def compare(parts: Sequence[str] | None, *, rounds: int) -> Comparison:
    """Measure parts by name; `None`: all but those that are measured on request; `all`: all."""
    names = parts or [name for name in PARTS if name not in ON_REQUEST]
    if names == [EVERY]:
        names = list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise LabError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    top = asyncio.run(limits())
    found = [asyncio.run(_part(name, rounds, top)) for name in names]
    pairs = tuple(pair for part in found for pair in part.pairs)
    growth = tuple(one for part in found for one in part.growth)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Comparison(pairs, growth, top, machine(1), versions(), load)


async def _part(name: str, rounds: int, top: Limits) -> Measured:
    return await PARTS[name](rounds, top)


def write_comparison(found: Comparison, out: Path) -> tuple[Path, Path]:
    """The page and the JSON, side by side."""
    text = json.dumps(found.record(), indent=2) + "\n"
    return (
        files.write_text(out.with_suffix(".md"), found.markdown() + "\n"),
        files.write_text(out.with_suffix(".json"), text),
    )
