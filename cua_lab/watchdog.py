"""A run that is stuck says what it waits for: on `kill -USR1`, and by itself after a while.

Invariant: nothing is changed by it; it writes to standard error and ends with its block. The signal
also has the interpreter's own dump of every thread, which comes even where no Python code runs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType

from cua_lab.waiting import progressed, quiet_s, told

SIGNAL = getattr(signal, "SIGUSR1", None)
LOOK_S = 1.0


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def watchdog(
    minutes: float, say: Callable[[str], None] = _to_stderr, *, look_s: float = LOOK_S
) -> Iterator[None]:
    """Watch what is done inside; after `minutes` without progress, and as often again, say what is
    awaited. 0 speaks on the signal alone."""
    asked, ended = threading.Event(), threading.Event()
    progressed()

    def watch() -> None:
        spoken = 0.0
        while not ended.wait(look_s):
            quiet = quiet_s()
            spoken = min(spoken, quiet)
            due = minutes > 0 and quiet - spoken >= 60 * minutes
            if asked.is_set() or due:
                asked.clear()
                spoken = quiet if due else spoken
                say(_report())

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    with _on_signal(asked.set):
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _report() -> str:
    at = datetime.now().strftime("%H:%M:%S")
    return f"--- {at}, process {os.getpid()}: what it waits for\n{told()}\n---"


@contextmanager
def _on_signal(heard: Callable[[], None]) -> Iterator[None]:
    """Hear the signal inside; only the main thread may ask for it."""
    if SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        heard()

    before = signal.signal(SIGNAL, handler)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be no file
        if sys.__stderr__ is not None:
            faulthandler.register(SIGNAL, file=sys.__stderr__, all_threads=True, chain=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            faulthandler.unregister(SIGNAL)
        signal.signal(SIGNAL, before)
