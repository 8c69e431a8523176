"""TigerVNC's Xvnc: an X server whose screen is an RFB desktop on a loopback port.

Invariants: what `start_xvnc` returns accepts RFB connections on 127.0.0.1 alone, its lock and its
socket are the guard's to remove, and its port stays this process's own while `Xvnc.held` is open: a
socket that is bound and never listens keeps the system from dealing the port to anybody else, also
between two servers on it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import sys
from dataclasses import dataclass

from cua_lab.desktop.guard import Guard
from cua_lab.errors import LabError
from cua_lab.waiting import waiting

HOST = "127.0.0.1"
BOOT_S = 20.0
PARK_S = 15.0
"""A server that was killed or stopped takes nothing."""
ATTEMPTS = 3
"""Another process may take a free port between the look and the bind."""
PROGRAMS = ("Xtigervnc", "Xvnc")


@dataclass(frozen=True, slots=True)
class Xvnc:
    """A running X server."""

    display: int
    port: int
    """Of RFB."""
    size: tuple[int, int]
    process: asyncio.subprocess.Process
    held: socket.socket
    """Bound to the port; close it to let go of it."""

    @property
    def url(self) -> str:
        return f"rfb://{HOST}:{self.port}"

    async def park(self, *taps: int) -> None:
        """Release everything that is held and put the pointer into the last corner, so that an
        episode starts from the same pixels as every other; then tap these keysyms."""
        async with waiting("Xvnc to take the last keys and the pointer", PARK_S):
            await self._park(taps)

    async def _park(self, taps: tuple[int, ...]) -> None:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            await _handshake(reader, writer)
            width, height = self.size
            writer.write(struct.pack(">BBHH", 5, 0, width - 1, height - 1))
            for keysym in HELD:
                writer.write(struct.pack(">BBxxI", 4, 0, keysym))
            for keysym in taps:
                writer.write(struct.pack(">BBxxI", 4, 1, keysym))
                writer.write(struct.pack(">BBxxI", 4, 0, keysym))
            await _answered(reader, writer)
        finally:
            writer.close()


HELD = (0xFFE1, 0xFFE2, 0xFFE3, 0xFFE4, 0xFFE7, 0xFFE8, 0xFFE9, 0xFFEA, 0xFFEB, 0xFFEC, 0xFE03)
"""Shift, Control, Meta, Alt and Super, left and right, and AltGr."""


def program() -> str:
    """Where Xvnc is, or which package has it."""
    path = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if path is None:
        raise LabError(
            "no Xvnc (looked for Xtigervnc and Xvnc on the PATH): on Debian "
            "`apt-get install tigervnc-standalone-server`; `cua-lab doctor` lists what is missing"
        )
    return path


async def start_xvnc(guard: Guard, size: tuple[int, int], *, port: int | None = None) -> Xvnc:
    """Start an X server of this size, on this RFB port or a free one."""
    for attempt in range(ATTEMPTS):
        held = hold(port or 0)
        try:
            return await _start(guard, size, held)
        except OSError:
            held.close()
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            held.close()
            raise
    raise AssertionError("unreachable")


def hold(port: int) -> socket.socket:
    """A socket that keeps a port of 127.0.0.1, or a free one for 0, for a server of ours.

    Both bind it with SO_REUSEADDR, which Linux allows while only one of them listens. Elsewhere the
    socket only finds a free port, and lets go of it.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))
    except OSError as error:
        held.close()
        raise OSError(f"port {port} of {HOST} is taken: {error.strerror}") from error
    return held


async def _start(guard: Guard, size: tuple[int, int], held: socket.socket) -> Xvnc:
    port = int(held.getsockname()[1])
    if sys.platform != "linux":
        held.close()
    read_end, write_end = os.pipe()
    try:
        process = await guard.start(
            program(), "-geometry", f"{size[0]}x{size[1]}", "-depth", "24",
            "-rfbport", str(port), "-interface", HOST, "-localhost", "-UseIPv6=0",
            "-SecurityTypes", "None", "-AlwaysShared", "-AcceptSetDesktopSize=0",
            "-FrameRate", "120",
            # Cut text desyncs asyncvnc, which takes it for a Bell.
            "-SendCutText=0", "-SendPrimary=0", "-AcceptCutText=0",
            "-nolisten", "tcp", "-noreset", "-ac", "-displayfd", str(write_end),
            log="xvnc.log", pass_fds=(write_end,),
        )  # fmt: skip
    finally:
        os.close(write_end)
    try:
        display = await _display(read_end)
    except (TimeoutError, ValueError) as error:
        raise OSError(f"Xvnc did not start:\n{guard.log('xvnc.log')}") from error
    guard.removes_display(display, process.pid)
    return Xvnc(display, port, size, process, held)


async def _display(read_end: int) -> int:
    """The display's number, which the server writes when it is ready."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(read_end, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        async with waiting("Xvnc to say its display", BOOT_S):
            return int(await reader.readline())
    finally:
        transport.close()


async def _handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """RFB 3.8 without a password, as a guest who shares the screen."""
    await reader.readexactly(12)
    writer.write(b"RFB 003.008\n")
    await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(b"\x01")
    await reader.readexactly(4)
    writer.write(b"\x01")
    head = await reader.readexactly(24)
    await reader.readexactly(int.from_bytes(head[20:], "big"))


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the server has handled all that was written: it answers in order."""
    writer.write(struct.pack(">BBHHHH", 3, 0, 0, 0, 1, 1))
    await reader.readexactly(1)
