"""One run at a time in a folder.

Invariant: the lock is the kernel's (flock), so it ends with the process that holds it, however that
ends; a child that is given the descriptor keeps it until it is gone as well.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cua_lab.errors import LabError

FILE = ".lock"
PATIENCE_S = 2.0
"""A child of a run that was killed a moment ago may still hold its folder."""
LOOK_S = 0.05


@contextmanager
def locked(folder: Path, *, patience_s: float | None = None) -> Iterator[int]:
    """Hold a folder for this process; yields the descriptor. One that is held is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait(handle, folder, PATIENCE_S if patience_s is None else patience_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _wait(handle: int, folder: Path, patience_s: float) -> None:
    for _ in range(1 + round(patience_s / LOOK_S)):
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
    holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "another process"
    raise LabError(
        f"{folder} is in use by a run that is going on (process {holder});"
        " wait for its end, stop it with Ctrl-C, or choose another --name"
    )
