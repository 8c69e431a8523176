"""Reading frames off an asyncvnc connection.

asyncvnc's own `screenshot` takes a Bell for cut text and cut text for a Bell: a lone Bell makes it
wait for ever, cut text desyncs the stream. So messages are read here by the protocol's numbers;
asyncvnc decodes the rectangles. Invariant: after `read_frame` the stream stands between messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncvnc
    import numpy as np

UPDATE, COLOUR_MAP, BELL, CUT_TEXT = range(4)


async def read_frame(conn: asyncvnc.Client) -> np.ndarray:
    """Ask for the whole screen and read until it is complete: (height, width, 3) uint8, RGB."""
    conn.video.data = None  # None asks for everything, not for what changed
    conn.video.refresh()
    while True:
        if await _read_message(conn) == UPDATE and conn.video.is_complete():
            return conn.video.as_rgba()[:, :, :3]


async def _read_message(conn: asyncvnc.Client) -> int:
    kind = (await conn.reader.readexactly(1))[0]
    if kind == UPDATE:
        await conn.reader.readexactly(1)
        for _ in range(await _number(conn, 2)):
            await conn.video.read()
    elif kind == COLOUR_MAP:
        await conn.reader.readexactly(3)
        await conn.reader.readexactly(6 * await _number(conn, 2))
    elif kind == CUT_TEXT:
        await conn.reader.readexactly(3)
        await conn.reader.readexactly(await _number(conn, 4))
    elif kind != BELL:
        raise ValueError(f"the RFB server sent a message of unknown kind {kind}")
    return kind


async def _number(conn: asyncvnc.Client, size: int) -> int:
    return int.from_bytes(await conn.reader.readexactly(size), "big")
