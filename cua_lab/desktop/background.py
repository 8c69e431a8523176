"""A loop of its own for desktops that run outside of Python.

Browsers must outlive the loop that asks for them: a notebook, two `asyncio.run` in a row, a plain
function. So their pipes belong to one loop in a background thread. Invariant: the thread lives as
long as the process, since Linux ends a child "with its parent" when the parent's thread ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = 0
"""The process whose thread it is: a fork has the loop but no thread."""


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started when it is first asked for."""
    global _loop, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="desktops", daemon=True).start()
        return _loop


async def run(work: Coroutine[Any, Any, T]) -> T:
    """Do work on the background loop, from any loop; a cancellation reaches it."""
    if asyncio.get_running_loop() is loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop()))


class Lifetime:
    """What lives on the background loop from `start` to `close`, or inside `async with`."""

    async def start(self) -> Self:
        """Boot; returns when all of it can be used."""
        await run(self._start())
        return self

    async def close(self) -> None:
        """End everything and remove everything. May be called twice."""
        await run(self._close())

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _start(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Do work on the background loop and block until it is done: for code without a loop. Where a
    task is blocked by it, and cancelled (Ctrl-C), so is the work."""
    if threading.current_thread().name == "desktops":
        work.close()
        raise RuntimeError("the background loop cannot wait for itself: await the work instead")
    future = asyncio.run_coroutine_threadsafe(work, loop())
    while True:
        try:
            return future.result(timeout=0.2)
        except TimeoutError:
            if future.done():  # the work's own
                raise
            if _cancelled():
                future.cancel()
                raise asyncio.CancelledError from None


def _cancelled() -> bool:
    """Whether the task that runs in this thread, if one does, is to end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop here
        return False
    return task is not None and task.cancelling() > 0
