"""The bench's part about a whole run: the smoke recipe, its stages side by side and in turn.

Time is the wall's: stages side by side cost a little more CPU and are there to use a second core.
Both write the same records; the note says so.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from cua_lab.bench.machine_limits import Limits
from cua_lab.bench.pairs import Measured, Way, interleaved, pairs_of
from cua_lab.errors import LabError

RECORDS = ("metrics.jsonl", "episodes.jsonl")


async def run(rounds: int, top: Limits) -> Measured:
    """One round of five: a round is two runs."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        together, apart = home / "together", home / "apart"
        ways: dict[str, Way] = {
            "stages side by side": partial(_smoke, together, 2),
            "stages in turn": partial(_smoke, apart, 1),
        }
        timings = await interleaved(ways, rounds=max(1, rounds // 5), clock="wall", warm_up=False)
        equal = all(_record(together, file) == _record(apart, file) for file in RECORDS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Measured(
        pairs_of(
            "run",
            "the smoke recipe",
            timings,
            note=f"{cores} cores; records {'equal to the byte' if equal else 'DIFFER'}",
            clock="wall",
            why="two stages share nothing but the folder, so each has a process and a core;"
            " importing torch and HUD, about a fifth of this small recipe, is paid twice",
        )
    )


async def _smoke(home: Path, stages: int) -> None:
    home.mkdir(exist_ok=True)
    words = ["smoke", "--set", f"run.parallel_stages={stages}"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cua_lab", *words),
        cwd=home,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise LabError(f"cua-lab {' '.join(words)} failed: {said.decode()[-400:].strip()}")


def _record(home: Path, file: str) -> bytes:
    return (home / "runs" / "smoke" / file).read_bytes()
