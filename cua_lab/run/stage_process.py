"""One stage of a run in a process of its own: `python -m cua_lab.run.stage_process RUN STAGE`.

It reads the recipe from the run's config.yaml, keeps its own records and progress in
`stages/<stage>/`, and goes on from there where an earlier session was stopped. On its standard
output it tells its bars and, in the end, the error that stopped it. Invariants: it computes what
the run's own process would, bit for bit; SIGTERM stops it as Ctrl-C stops a run, with a checkpoint;
and it ends with its parent, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from cua_lab.errors import LabError
from cua_lab.recipes import load_recipe
from cua_lab.run.bars import tell, tell_bars
from cua_lab.run.collector import objects_set_aside
from cua_lab.run.folder import RunFolder
from cua_lab.run.memory import peak_rss_gib
from cua_lab.run.recovery import is_finished, recover
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import build_stage
from cua_lab.watchdog import watchdog

STOPPED = 128 + signal.SIGTERM
"""Exit status of a stage that was asked to stop."""


async def play_stage(path: Path, name: str) -> None:
    """What is left of one stage of the run in `path`, with records of its own."""
    recipe = load_recipe(path / "config.yaml")
    torch.set_num_threads(recipe.run.threads)
    stage = recipe.stage(name)
    folder = RunFolder(path).of_stage(name)
    folder.home.mkdir(parents=True, exist_ok=True)
    progress = recover(replace(recipe, stages=(stage,)), folder)
    if not is_finished(stage, progress):
        run = StageRun.open(build_stage(recipe, stage), folder, progress)
        with objects_set_aside(), watchdog(recipe.run.watchdog_minutes):
            await run.run()
    progress.tally.add_memory(peak_rss_gib())
    progress.save(folder)


def end_with_parent() -> None:
    """The parent holds the other end of this process's input."""

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held as the interpreter ends
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


async def _until_stopped(path: Path, name: str) -> None:
    played = asyncio.ensure_future(play_stage(path, name))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, played.cancel)
    await played


def main(path: str, name: str) -> int:
    """Its exit status."""
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints, prints where it disturbs no line
    tell_bars(told)
    try:
        asyncio.run(_until_stopped(Path(path), name))
    except asyncio.CancelledError:
        return STOPPED
    except LabError as error:
        tell(told, {"error": str(error)})
        return 1
    except Exception as error:
        tell(told, {"crash": repr(error), "traceback": traceback.format_exc()})
        return 1
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(*sys.argv[1:]))
