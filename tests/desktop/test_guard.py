"""Guards: what a desktop started ends with the process that wanted it, however that ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cua_lab.desktop.guard import Guard

PARENT = """
import asyncio
from cua_lab.desktop.guard import Guard

async def main():
    guard = await Guard.open()
    child = await guard.start("/bin/sh", "-c", "sleep 60 & sleep 60", log="child.log")
    (guard.folder / "file").write_text("x")
    print(child.pid, guard.folder, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends within this time; zombies that nobody reaps have ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_closed_guard_leaves_no_process_and_no_file() -> None:
    async def scenario() -> tuple[Guard, int, list[int]]:
        guard = await Guard.open()
        child = await guard.start("/bin/sh", "-c", "sleep 60 & echo $!; wait", log="log")
        while not (lines := guard.log("log")):
            await asyncio.sleep(0.01)
        await guard.close()
        return guard, child.pid, [int(lines)]

    guard, child, grandchildren = asyncio.run(scenario())
    assert gone(child)
    assert all(gone(pid) for pid in grandchildren)
    assert not guard.folder.exists()


def test_a_killed_parent_leaves_no_process_and_no_file() -> None:
    """Children outlive a killed parent unless someone sees to it; SIGKILL runs no handler."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    family = [p.pid for p in psutil.Process(int(pid)).children(recursive=True)]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert all(gone(p) for p in [int(pid), *family])
    end = time.monotonic() + 5
    while Path(folder).exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(folder).exists()
    parent.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are listed in /proc/net/unix")
@pytest.mark.parametrize("taken_over", [False, True])
def test_a_display_that_another_server_has_taken_over_keeps_its_files(taken_over: bool) -> None:
    """A desktop that was ending removed the socket of one that had just booted under its number;
    that one "did not start: No such file or directory"."""
    number = 20000 + os.getpid() % 10000
    path, lock = Path(f"/tmp/.X11-unix/X{number}"), Path(f"/tmp/.X{number}-lock")
    path.parent.mkdir(exist_ok=True)

    def server(pid: int) -> socket.socket:
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()
        lock.write_text(f"{pid:10d}\n")
        return listening

    async def scenario() -> None:
        guard = await Guard.open()
        with server(4242) as ours:
            guard.removes_display(number, 4242)
            if taken_over:
                ours.close()
                with server(4243):
                    await guard.close()
            else:
                await guard.close()

    try:
        asyncio.run(scenario())
        assert (path.exists(), lock.exists()) == (taken_over, taken_over)
    finally:
        path.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
