"""What a stuck run waits for is told by episode, slot and call; limits count the time that ran."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from cua_lab import waiting as module
from cua_lab.waiting import labelled, progressed, told, waiting
from cua_lab.watchdog import watchdog


def test_a_wait_ends_at_its_limit_and_leaves_nothing_behind() -> None:
    async def stuck() -> None:
        async with waiting("a bus", 0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(stuck())
    assert "a bus" not in told()


def test_a_wait_without_a_limit_is_listed_and_ends_with_its_block() -> None:
    async def scenario() -> str:
        async with waiting("a free desktop"):
            return told()

    assert "a free desktop (no limit of its own)" in asyncio.run(scenario())
    assert "a free desktop" not in told()


def test_an_error_or_a_cancellation_inside_passes_as_it_is() -> None:
    async def raising() -> None:
        async with waiting("x", 60.0):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        asyncio.run(raising())

    async def cancelled() -> None:
        async def inner() -> None:
            async with waiting("x", 60.0):
                await asyncio.Event().wait()

        task = asyncio.create_task(inner())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_time_in_which_the_process_was_stopped_counts_for_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGSTOP for 15 s failed a step's episodes."""
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "crowd", lambda: 1.0)

    async def scenario() -> list[float]:
        left = []
        async with waiting("a frame", 10.0) as wait:
            for _ in range(3):
                clock[0] += 15.0
                wait._look()
                left.append(10.0 - wait._ran)
        return left

    assert asyncio.run(scenario()) == [8.0, 6.0, 4.0]


def test_where_seven_threads_want_a_core_a_limit_is_seven_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """about:blank took more than 5 s at a load of 14 on two cores."""
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "crowd", lambda: 7.0)

    async def scenario() -> float:
        async with waiting("a page", 5.0) as wait:
            for _ in range(34):
                clock[0] += 1.0
                wait._look()
            return wait._ran

    assert asyncio.run(scenario()) == pytest.approx(34 / 7)


def test_who_waits_is_told_with_the_calls_that_lead_there() -> None:
    async def deepest() -> None:
        async with waiting("a frame of the screen", 60.0):
            await asyncio.Event().wait()

    async def episode(name: str) -> None:
        with labelled(f"slot {name}, episode click-{name}"):
            await asyncio.create_task(deepest(), name=f"player-{name}")

    async def scenario() -> str:
        tasks = [asyncio.create_task(episode(name)) for name in "12"]
        await asyncio.sleep(0.01)
        text = told()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return text

    text = asyncio.run(scenario())
    for name in "12":
        assert f"slot {name}, episode click-{name}: a frame of the screen (limit 60 s)" in text
    assert "2 x deepest (tests/test_waiting.py:" in text
    assert "> wait (asyncio/locks.py:" in text, "down to where it is suspended"
    assert "player-1, player-2" in text
    assert text.index("click-1") < text.index("click-2"), "the longest first"


def test_a_part_says_in_its_own_words_what_it_waits_for_and_may_fail_to() -> None:
    def broken() -> str:
        raise RuntimeError

    with module.telling(lambda: "round: waits for slot 3"), module.telling(broken):
        assert "round: waits for slot 3" in told()
    assert "slot 3" not in told()


def test_the_watchdog_speaks_by_itself_once_for_each_time_that_nothing_ends() -> None:
    said: list[str] = []
    with watchdog(0.05 / 60, said.append, look_s=0.01):
        while len(said) < 2:
            time.sleep(0.01)
    assert "waits, the longest first" in said[0]
    count = len(said)
    time.sleep(0.05)
    assert len(said) == count, "it ends with its block"


def test_a_run_that_goes_on_hears_nothing() -> None:
    said: list[str] = []
    with watchdog(60.0, said.append, look_s=0.001):
        for _ in range(20):
            progressed()
            time.sleep(0.002)
    with watchdog(0, said.append, look_s=0.001):
        time.sleep(0.02)
    assert said == []


STUCK = """
import asyncio
from cua_lab.waiting import labelled, waiting
from cua_lab.watchdog import watchdog

async def main():
    with labelled("slot 0, episode click-7"):
        async with waiting("the grader", 600):
            print("stuck", flush=True)
            await asyncio.Event().wait()

with watchdog(0, look_s=0.01):
    asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1 here")
def test_sigusr1_asks_a_stuck_process_and_it_goes_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "stuck\n"
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            heard = ""
            while "\n---\n" not in heard:
                line = process.stderr.readline()
                assert line, heard
                heard += line
            assert "slot 0, episode click-7: the grader (limit 600 s)" in heard
            assert "main (<string>" in heard or "main (" in heard
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
