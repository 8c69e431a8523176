"""The next stage's warm-up, in a process of its own while this stage trains.

    start ──▶ child: the warm-up alone, into <run>/ahead/<stage>/ ──▶ adopt ──▶ <run>/

A warm-up needs nothing of the stages before it, and a stage leaves one of two cores half idle.
Invariant: what is adopted is what the parent would have written itself, byte for byte but for the
times. A child that fails leaves nothing: the parent does that warm-up itself, and shows the error.
It ends with its parent, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

from cua_lab import files
from cua_lab.recipes import load_recipe
from cua_lab.run.folder import RunFolder
from cua_lab.run.memory import peak_rss_gib
from cua_lab.run.progress import Progress, bar
from cua_lab.run.stage import StageRun
from cua_lab.run.stage_context import StageContext, build_stage

FOLDER = "ahead"
FILES = ("metrics.jsonl", "timings.jsonl")
"""Where a warm-up writes its records."""
POLL_S = 0.2


class WarmupProcess:
    """At most one child; a context manager that ends it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WarmupProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def start(self, setup: StageContext) -> None:
        """Begin the warm-up of a stage; one that an earlier sitting has finished is kept."""
        name = setup.stage.name
        if self._done(name):
            return
        files.remove_folder(self._of(name).path)
        lock = self._folder.lock
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._folder.path), name],
            pass_fds=() if lock is None else (lock,),  # it writes here: the folder is held by both
            stdin=subprocess.PIPE,  # its end is the child's
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TQDM_DISABLE": "1"},
            start_new_session=True,  # Ctrl-C is the parent's business
        )

    async def adopt(self, setup: StageContext, progress: Progress) -> None:
        """Wait for the stage's child, if there is one, and take over what it has done."""
        name = setup.stage.name
        await self._wait(setup)
        theirs = self._of(name)
        if progress.stage(name).warm or not self._done(name):
            self._clear(name)
            return
        found = Progress.load(theirs)
        for file in FILES:
            for line in read_text_lines(theirs.path / file):
                files.append_line(self._folder.path / file, line)
        if theirs.warm_up(name).exists():  # else it was moved before this process was killed
            files.move_folder(theirs.warm_up(name), self._folder.warm_up(name))
        progress.tally.add_seconds(**found.tally.seconds)
        progress.tally.add_work(**found.tally.work)
        progress.tally.add_memory(peak_rss_gib() + peak_rss_gib(resource.RUSAGE_CHILDREN))
        progress.stage(name).warm = True
        progress.save(self._folder)
        self._clear(name)

    def _done(self, name: str) -> bool:
        """Whether a child has finished the warm-up, and it is still there or already adopted."""
        theirs = self._of(name)
        if not Progress.load(theirs).stage(name).warm:
            return False
        return theirs.warm_up(name).exists() or self._folder.warm_up(name).exists()

    async def _wait(self, setup: StageContext) -> None:
        if self._child is None:
            return
        name, steps = setup.stage.name, setup.stage.sft.steps
        records = self._of(name).path / "metrics.jsonl"
        with bar(f"{name}: warm-up", steps, "step") as progress:
            while self._child.poll() is None:
                done = records.read_bytes().count(b"\n") if records.exists() else 0
                progress.update(done - progress.n)
                await asyncio.sleep(POLL_S)
        self._child = None

    def _clear(self, name: str) -> None:
        files.remove_folder(self._of(name).path)
        files.remove_partials(self._folder.path / FOLDER)
        with contextlib.suppress(OSError):  # not there, or not empty
            (self._folder.path / FOLDER).rmdir()

    def _of(self, name: str) -> RunFolder:
        return RunFolder(self._folder.path / FOLDER / name)


def read_text_lines(path: Path) -> list[str]:
    """The whole lines of a record file as they are, byte for byte."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


def end_with_parent() -> None:
    """The parent holds the other end of this process's input."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def warm_up(path: Path, name: str) -> None:
    """The child: the warm-up of one stage of the run in `path`."""
    import torch

    recipe = load_recipe(path / "config.yaml")
    torch.set_num_threads(recipe.run.threads)
    folder = RunFolder.create(path / FOLDER / name, resume=False)
    run = StageRun.open(build_stage(recipe, recipe.stage(name)), folder, Progress())
    try:
        asyncio.run(run.warm_up())
    finally:
        run.engine.close()


if __name__ == "__main__":
    end_with_parent()
    warm_up(Path(sys.argv[1]), sys.argv[2])
