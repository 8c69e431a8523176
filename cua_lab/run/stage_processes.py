"""Stages side by side: those that wait for their turn run in processes of their own.

    this process   stage 1 ──────▶ records of 2 ▶ records of 3 ▶ summary
    a process           stage 2 ───▶┘             │
    a process                       stage 3 ──────┘

A stage needs nothing of the stages before it. The first one is played here, straight into the run's
files; what a later one records is taken over in the order of the stages, when its turn comes.
Invariant: the run's files are what they are when one stage is played after the other, byte for byte
but for the times. No process outlives the run: it is asked to stop, and after a while it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cua_lab import files
from cua_lab.errors import LabError
from cua_lab.recipes import Recipe
from cua_lab.run.bars import DrawnBars
from cua_lab.run.folder import RECORD_FILES, STAGES, RunFolder
from cua_lab.run.memory import peak_rss_gib
from cua_lab.run.progress import Progress
from cua_lab.run.recovery import is_finished
from cua_lab.training.ranks import launched_ranks
from cua_lab.waiting import progressed

POLL_S = 0.2
PATIENCE_S = 30.0
"""For a stage that is asked to stop: its step in progress and a checkpoint."""


def most_at_once(recipe: Recipe) -> int:
    """How many stages run at once: as the recipe says, else one for each core that they leave."""
    run = recipe.run
    if run.parallel_stages is not None:
        return min(run.parallel_stages, len(recipe.stages))
    if recipe.engine.kind != "embedded" or launched_ranks() > 1:  # one GPU holds one server
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min((cores or 1) // run.threads, len(recipe.stages)))


@dataclass(slots=True)
class StageProcess:
    """One stage's process, as the run sees it."""

    name: str
    process: subprocess.Popen[bytes]
    bars: DrawnBars
    rest: bytes = b""
    """Of its output, what is not yet a line."""
    error: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: RunFolder, name: str, position: int) -> StageProcess:
        process = subprocess.Popen(
            [sys.executable, "-m", "cua_lab.run.stage_process", str(folder.path), name],
            pass_fds=() if folder.lock is None else (folder.lock,),  # both hold the folder
            stdin=subprocess.PIPE,  # its end is the child's
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the parent's business
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return cls(name, process, DrawnBars(position))

    def ended(self) -> bool:
        """Take in what it has told, and whether that is all; raises the error that stopped it."""
        status = self.process.poll()
        self._listen()
        if status is None:
            return False
        self.bars.close()
        if status != 0:
            raise self._failure(status)
        return True

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while heard := self.process.stdout.read():
            *lines, self.rest = (self.rest + heard).split(b"\n")
            for line in lines:
                progressed()
                event = json.loads(line)
                self.bars.hear(event)
                if "error" in event or "crash" in event:
                    self.error = event

    def _failure(self, status: int) -> Exception:
        if "error" in self.error:
            return LabError(self.error["error"])
        if "crash" in self.error:
            crash = RuntimeError(f"stage {self.name!r}: {self.error['crash']}")
            crash.add_note(self.error["traceback"])
            return crash
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        hint = "; the system may have been out of memory" if status == -signal.SIGKILL else ""
        return LabError(
            f"the process of stage {self.name!r} was ended {how}{hint}. Go on with --resume; with"
            " run.parallel_stages=1 the stages take one after the other"
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.bars.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class StageProcesses:
    """The processes of a run's stages; a context manager that ends them."""

    def __init__(self, recipe: Recipe, folder: RunFolder, waiting: Sequence[str]) -> None:
        self._recipe, self._folder, self._limit = recipe, folder, most_at_once(recipe)
        self._waiting = list(waiting)
        """Stages that have neither begun nor been given a process, in their order."""
        self._running: dict[str, StageProcess] = {}
        self._held_gib: list[float] = []
        """Peak memory of each stage that was taken over."""

    def __enter__(self) -> StageProcesses:
        return self

    def __exit__(self, *exc: object) -> None:
        running = list(self._running.values())
        self._running.clear()
        try:
            for child in running:
                child.process.terminate()
            until = time.monotonic() + PATIENCE_S
            for child in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))
        finally:  # also at a second Ctrl-C
            for child in running:
                child.kill()

    def told(self) -> str:
        """Who plays what, and how to ask them what they wait for."""
        running = [f"{c.name} in process {c.process.pid}" for c in self._running.values()]
        asked = "; `kill -USR1` that process to ask it" if running else ""
        return f"stages beside this one: {', '.join(running) or 'none'}{asked}"

    def apart(self, name: str) -> bool:
        """Whether this stage runs, ran, or in an earlier session began, in a process of its own."""
        return name in self._running or self._folder.of_stage(name).started

    async def play_here(self, name: str, play: Callable[[], Awaitable[None]]) -> None:
        """Play a stage in this process, with others beside it; a failure of one ends both."""
        self._waiting = [other for other in self._waiting if other != name]
        self._fill(self._limit - 1)
        own = asyncio.ensure_future(play())
        beside = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({own, beside}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            beside.cancel()
            if not own.done():
                own.cancel()
            await asyncio.wait({own, beside})
        if not beside.cancelled() and (error := beside.exception()) is not None:
            raise error
        own.result()

    async def take_over(self, name: str, progress: Progress) -> None:
        """Wait for a stage's process, and make its records the run's."""
        if name in self._waiting:  # begun in an earlier session
            self._waiting.remove(name)
            if not self._finished(name):
                self._start(name)
        while name in self._running:
            self._poll()
            self._fill(self._limit)
            await asyncio.sleep(POLL_S if name in self._running else 0)
        self._adopt(name, progress)

    async def _watch(self) -> None:
        while True:
            self._poll()
            self._fill(self._limit - 1)
            await asyncio.sleep(POLL_S)

    def _poll(self) -> None:
        for name, child in list(self._running.items()):
            try:
                ended = child.ended()
            except BaseException:
                self._running.pop(name).kill()
                raise
            if ended:
                self._running.pop(name).kill()

    def _fill(self, most: int) -> None:
        while self._waiting and len(self._running) < most:
            name = self._waiting.pop(0)
            if not self._finished(name):
                self._start(name)

    def _finished(self, name: str) -> bool:
        """In an earlier session, which was stopped before it took the stage over."""
        found = Progress.load(self._folder.of_stage(name))
        return is_finished(self._recipe.stage(name), found)

    def _start(self, name: str) -> None:
        used = {child.bars.position for child in self._running.values()}
        position = next(p for p in range(1, len(used) + 2) if p not in used)
        self._running[name] = StageProcess.start(self._folder, name, position)

    def _adopt(self, name: str, progress: Progress) -> None:
        """Killed in the middle, the next session cuts the lines and takes them over again."""
        theirs = self._folder.of_stage(name)
        found = Progress.load(theirs)
        for file in RECORD_FILES:
            for line in _lines(theirs, file):
                files.append_line(self._folder.path / file, line)
        viewer = theirs.home / "viewer.json"
        if viewer.exists():
            self._folder.write("viewer.json", viewer.read_text(encoding="utf-8"))
        progress.tally.add(found.tally)
        self._held_gib.append(found.tally.memory_gib or 0.0)
        beside = sorted(self._held_gib)[-self._limit :]
        progress.tally.add_memory(peak_rss_gib() + sum(beside))
        progress.stages[name] = found.stage(name)
        progress.save(self._folder)
        clear_stage(self._folder, name)


def clear_stage(folder: RunFolder, name: str) -> None:
    """Remove the records of a stage that the run has taken over."""
    files.remove_folder(folder.of_stage(name).home)
    with contextlib.suppress(OSError):  # not there, or not empty
        (folder.path / STAGES).rmdir()


def _lines(folder: RunFolder, file: str) -> list[str]:
    """The whole lines of a record file as they are, byte for byte."""
    path = folder.home / file
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
