"""The desktops' own loop: code without a loop waits for it, and may give up waiting."""

import asyncio
import time

import pytest

from cua_lab.desktop import background


def test_a_cancelled_task_does_not_wait_for_browsers_to_the_end() -> None:
    """Ctrl-C while demonstrations are recorded: asyncio cancels the task, which blocks its loop."""
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("work")

    async def blocked() -> None:
        task = asyncio.current_task()
        assert task is not None
        background.loop().call_later(0.1, task.cancel)  # as the signal's handler would
        background.wait(work())

    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(blocked())
    assert time.perf_counter() - started < 10
    background.wait(asyncio.sleep(0))
    assert ended == ["work"]


def test_the_works_own_timeout_is_its_own() -> None:
    async def late() -> None:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        background.wait(late())
    assert background.wait(asyncio.sleep(0, "done")) == "done"
