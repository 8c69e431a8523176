"""What `cua-lab bench compare` found, as a page and as JSON.

Invariant: figures never stand without the machine that they were measured on and its limits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cua_lab import files
from cua_lab.bench.machine_limits import Limits, limits
from cua_lab.bench.pairs import Pair, markdown
from cua_lab.bench.parts import PARTS
from cua_lab.errors import LabError
from cua_lab.run.job import machine, versions

NEEDS_A_BROWSER = ("settle",)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs, and what they were measured on."""

    pairs: tuple[Pair, ...]
    limits: Limits
    machine: dict[str, Any]
    versions: dict[str, str]

    def markdown(self) -> str:
        """The page."""
        m, top = self.machine, self.limits
        return (
            f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, one thread; torch"
            f" {self.versions['torch']}, Python {self.versions['python']}. Limits:"
            f" {top.gflops:.0f} GFLOP/s, {top.gib_per_s:.1f} GiB/s,"
            f" {top.loopback_ms:.3f} ms a loopback round trip, {top.png_ms:.1f} ms a PNG of"
            " 1280x1200 at level 1.\n\n" + markdown(self.pairs)
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "limits": asdict(self.limits),
            "pairs": [pair.record() for pair in self.pairs],
        }


def compare(parts: Sequence[str] | None, *, rounds: int) -> Comparison:
    """Measure parts by name; `None`: all that need no browser."""
    names = parts or [name for name in PARTS if name not in NEEDS_A_BROWSER]
    if unknown := [name for name in names if name not in PARTS]:
        raise LabError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    top = asyncio.run(limits())
    pairs = [pair for name in names for pair in asyncio.run(_part(name, rounds))]
    return Comparison(tuple(pairs), top, machine(1), versions())


async def _part(name: str, rounds: int) -> list[Pair]:
    return await PARTS[name](rounds)


def write_comparison(found: Comparison, out: Path) -> tuple[Path, Path]:
    """The page and the JSON, side by side."""
    text = json.dumps(found.record(), indent=2) + "\n"
    return (
        files.write_text(out.with_suffix(".md"), found.markdown() + "\n"),
        files.write_text(out.with_suffix(".json"), text),
    )
