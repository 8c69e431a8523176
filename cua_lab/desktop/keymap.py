"""The X server's keyboard table, read and put back over the X11 protocol itself.

    display ──setup──▶ GetKeyboardMapping ──▶ Keymap ──ChangeKeyboardMapping──▶ as it was

For a character that no key has, Xvnc lends one of its spare keys, some twenty of them, and never
takes it back: what one episode typed is missing to the next. Three requests of the protocol are all
that is needed (X11 core protocol, sections 8 and 9), so no X library is. Invariant: a `Keymap` is
the whole table, `per_key` keysyms for each of 248 keys.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

from cua_lab.waiting import waiting

SOCKET = "/tmp/.X11-unix/X{}"
FIRST_KEY, KEYS = 8, 248
SETUP = struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0)
"""Little-endian, protocol 11.0, without a name and without a password."""
TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Keymap:
    """Which keysyms each key has."""

    per_key: int
    keysyms: bytes
    """4 bytes each, `per_key` for each key, from key 8 on; 0 is none."""


async def read_keymap(display: int) -> Keymap:
    """The table now."""
    async with waiting("the X server's keys", TIMEOUT_S):
        reader, writer = await _connect(display)
        try:
            return await _read(reader, writer)
        finally:
            writer.close()


async def restore_keymap(display: int, wanted: Keymap) -> bool:
    """Put a table back; whether it had changed."""
    async with waiting("the X server to take its keys back", TIMEOUT_S):
        reader, writer = await _connect(display)
        try:
            if await _read(reader, writer) == wanted:
                return False
            length = 2 + len(wanted.keysyms) // 4
            writer.write(struct.pack("<BBHBBxx", 100, KEYS, length, FIRST_KEY, wanted.per_key))
            writer.write(wanted.keysyms)
            await _read(reader, writer)  # answered in order: the change was made
            return True
        finally:
            writer.close()


async def _connect(display: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = SOCKET.format(display)
    try:  # Linux's own name for it, which is the living server's alone; anybody can remove a file
        reader, writer = await asyncio.open_unix_connection(f"\0{path}")
    except (OSError, ValueError):
        reader, writer = await asyncio.open_unix_connection(path)
    writer.write(SETUP)
    accepted, length = struct.unpack("<B5xH", await reader.readexactly(8))
    await reader.readexactly(4 * length)
    if accepted != 1:
        writer.close()
        raise OSError(f"the X server :{display} lets nobody in")
    return reader, writer


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Keymap:
    """Ask for the table; events in between are skipped."""
    writer.write(struct.pack("<BxHBBxx", 101, 2, FIRST_KEY, KEYS))
    while True:
        head = await reader.readexactly(32)
        if head[0] == 0:
            raise OSError(f"the X server refused a request about its keys: error {head[1]}")
        if head[0] == 1:
            (length,) = struct.unpack_from("<I", head, 4)
            return Keymap(head[1], await reader.readexactly(4 * length))
