"""What this process waits for, with a limit on each wait, so that a stuck run can say it.

    async with waiting("a frame of the screen", 10.0): ...     registered, and ended by the limit
    with labelled("slot 3, episode click-0-1-3"): ...          whose waits these are
    told()                                                     all of it, as text

A limit counts the time that this process was given. One that was stopped (SIGSTOP, a laptop that
slept) for 15 s finds its limits where they were, and where seven threads want each core, so that
all takes seven times as long, a limit of 5 s is one of 35. Invariant:
whatever this package awaits outside of itself stands here while it does, longest first.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

TICK_S = 1.0
"""How often a wait looks at the clock; a longer gap between two looks counts as two of them."""
MOST_CROWDED = 10.0
"""Above it a machine is no slower but broken."""
_WHO: ContextVar[str] = ContextVar("who waits", default="")
_numbers = itertools.count()
_waits: dict[int, _Wait] = {}
_tellers: dict[int, Callable[[], str]] = {}
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_last_progress = time.monotonic()


@dataclass(slots=True)
class _Wait:
    what: str
    who: str
    limit_s: float | None
    since: float


@dataclass(slots=True)
class waiting:
    """Wait inside for at most `limit_s` seconds, else `TimeoutError`; `None` has no limit of its
    own, where another ends it."""

    what: str
    limit_s: float | None = None
    _number: int = 0
    _timeout: asyncio.Timeout | None = None
    _ran: float = 0.0
    _looked: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    _loop: asyncio.AbstractEventLoop = field(init=False, repr=False)

    async def __aenter__(self) -> Self:
        self._loop = loop = asyncio.get_running_loop()
        _loops[id(loop)] = loop
        self._number = next(_numbers)
        self._looked = time.monotonic()
        _waits[self._number] = _Wait(self.what, _WHO.get(), self.limit_s, self._looked)
        if self.limit_s is not None:
            self._timeout = asyncio.timeout(None)
            await self._timeout.__aenter__()
            self._timer = loop.call_later(min(TICK_S, self.limit_s), self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _waits.pop(self._number, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._timeout is not None:
            await self._timeout.__aexit__(kind, error, trace)

    def _look(self) -> None:
        assert self._timeout is not None
        assert self.limit_s is not None
        now = time.monotonic()
        self._ran += min(now - self._looked, 2 * TICK_S) / min(crowd(), MOST_CROWDED)
        self._looked = now
        left = self.limit_s - self._ran
        if left <= 0:
            self._timeout.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(min(TICK_S, left), self._look)


def crowd() -> float:
    """Threads that want to run, per core; 1 where all of them can, or where nobody says."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            running = int(file.read().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return 1.0
    return max(1.0, running / (os.cpu_count() or 1))


@contextmanager
def labelled(who: str) -> Iterator[None]:
    """Whatever is awaited inside, also by tasks that are started there, is this one's."""
    token = _WHO.set(who)
    try:
        yield
    finally:
        _WHO.reset(token)


@contextmanager
def telling(tell: Callable[[], str]) -> Iterator[None]:
    """Let a part say in its own words what it waits for while the block lasts."""
    number = next(_numbers)
    _tellers[number] = tell
    try:
        yield
    finally:
        _tellers.pop(number, None)


def progressed() -> None:
    """Something ended as it should: an episode, a step."""
    global _last_progress
    _last_progress = time.monotonic()


def quiet_s() -> float:
    """Seconds since anything progressed."""
    return time.monotonic() - _last_progress


def told() -> str:
    """Every wait, longest first, then what parts say, then where tasks and threads stand."""
    now = time.monotonic()
    waits = sorted(_waits.copy().values(), key=lambda wait: wait.since)
    lines = [f"{len(waits)} waits, the longest first; nothing ended for {quiet_s():.0f} s"]
    lines += [_line(wait, now) for wait in waits]
    for tell in list(_tellers.values()):
        with contextlib.suppress(Exception):  # it describes what may be changing
            lines.append(tell())
    for loop in list(_loops.values()):
        lines += _tasks(loop)
    lines += _threads()
    return "\n".join(lines)


def _line(wait: _Wait, now: float) -> str:
    limit = "no limit of its own" if wait.limit_s is None else f"limit {wait.limit_s:g} s"
    who = f"{wait.who}: " if wait.who else ""
    return f"  {now - wait.since:7.1f} s  {who}{wait.what} ({limit})"


def _tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """A line for each task of a loop: its way down to where it is suspended."""
    if loop.is_closed():
        _loops.pop(id(loop), None)
        return []
    try:
        tasks = asyncio.all_tasks(loop)
    except RuntimeError:  # they changed while another thread counted them
        return ["  tasks change too fast to be listed"]
    ways: dict[str, list[str]] = {}
    for task in tasks:
        ways.setdefault(" > ".join(_way(task.get_coro())), []).append(task.get_name())
    return [f"{len(tasks)} tasks of an event loop:"] + [
        f"  {len(names)} x {way or 'not begun'} ({', '.join(sorted(names)[:3])})"
        for way, names in sorted(ways.items())
    ]


def _way(coroutine: Any) -> Iterator[str]:
    """Where a coroutine stands, and what it awaits there, as far as Python tells."""
    for _ in range(64):
        frame = next(
            (
                f
                for name in ("cr_frame", "gi_frame", "ag_frame")
                if (f := getattr(coroutine, name, None))
            ),
            None,
        )
        if frame is None:
            return
        yield _place(frame)
        coroutine = next(
            (
                inner
                for name in ("cr_await", "gi_yieldfrom", "ag_await")
                if (inner := getattr(coroutine, name, None)) is not None
            ),
            None,
        )


def _place(frame: FrameType) -> str:
    file = "/".join(frame.f_code.co_filename.split("/")[-2:])
    return f"{frame.f_code.co_name} ({file}:{frame.f_lineno})"


def _threads() -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = ["threads:"]
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        stack = traceback.extract_stack(frame)[-4:]
        way = " > ".join(
            f"{f.name} ({'/'.join(f.filename.split('/')[-2:])}:{f.lineno})" for f in stack
        )
        lines.append(f"  {names.get(ident, ident)}: {way}")
    return lines
