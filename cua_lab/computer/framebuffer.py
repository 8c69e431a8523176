"""Reading frames off an asyncvnc connection.

asyncvnc's own `screenshot` takes a Bell for cut text and cut text for a Bell: a lone Bell makes it
wait forever, cut text desyncs the stream. So messages are read here by the protocol's numbers;
asyncvnc decodes the rectangles. Invariant: after every function here the stream stands between two
messages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cua_lab.computer.limits import skip
from cua_lab.waiting import waiting

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
            return _rgb(conn)


class Watch:
    """Follows a screen by incremental updates; only what changes is sent.

    One request is always out, and every answer but the last has been read, so that the image can
    never be one update behind. A full request beside it could: answers carry no numbers.
    """

    def __init__(self, conn: asyncvnc.Client) -> None:
        self.conn = conn
        self._asked = False

    async def change(self, wait_s: float, *, timeout_s: float) -> bool:
        """Whether something changed within `wait_s`; it is then read, within `timeout_s`.

        The first call reads the whole screen, which counts as a change.
        """
        conn = self.conn
        if not self._asked:
            async with waiting("a frame of the screen", timeout_s):
                await read_frame(conn)
            conn.video.refresh()
            self._asked = True
            return True
        try:
            async with asyncio.timeout(wait_s):
                kind = await conn.reader.readexactly(1)
        except TimeoutError:
            return False
        async with waiting("the rest of a change of the screen", timeout_s):
            if await _read_rest(conn, kind[0]) != UPDATE:
                return False  # a Bell or cut text: the screen is what it was
            conn.video.refresh()
        return True

    @property
    def image(self) -> np.ndarray:
        """The screen as far as it was read: (height, width, 3) uint8, RGB; not a copy to keep."""
        return _rgb(self.conn)


def _rgb(conn: asyncvnc.Client) -> np.ndarray:
    screen: np.ndarray = conn.video.as_rgba()  # asyncvnc has no types
    return screen[:, :, :3]


async def _read_message(conn: asyncvnc.Client) -> int:
    return await _read_rest(conn, (await conn.reader.readexactly(1))[0])


async def _read_rest(conn: asyncvnc.Client, kind: int) -> int:
    if kind == UPDATE:
        await conn.reader.readexactly(1)
        for _ in range(await _number(conn, 2)):
            await conn.video.read()
    elif kind == COLOUR_MAP:
        await conn.reader.readexactly(3)
        await conn.reader.readexactly(6 * await _number(conn, 2))
    elif kind == CUT_TEXT:
        await conn.reader.readexactly(3)
        await skip(conn.reader, await _number(conn, 4))
    elif kind != BELL:
        raise ValueError(f"the RFB server sent a message of unknown kind {kind}")
    return kind


async def _number(conn: asyncvnc.Client, size: int) -> int:
    return int.from_bytes(await conn.reader.readexactly(size), "big")
