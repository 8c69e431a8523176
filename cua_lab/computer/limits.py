"""Limits on what an RFB server may make its client hold.

    socket ──LimitedReader──▶ asyncvnc ──bounded inflate──▶ frame

Every length of the protocol has 32 bits, and a reader that trusts them collects gigabytes for a
server that is broken or hostile. Invariant: nothing longer than `most` bytes is ever collected:
64 KiB until the screen's size is known, then a whole frame and a little.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from cua_lab.desktop.near_streams import NearWriter, dial_near

HANDSHAKE = 64 * 1024
"""Bytes of one field before the first frame; the longest that is honest is a desktop's name."""
MOST_PIXELS = 8192 * 4608
"""The largest screen, 8K and some; a frame of it takes 144 MiB."""
PIECE = 64 * 1024


class LimitedReader:
    """A stream reader that refuses to collect more than `most` bytes at once."""

    def __init__(self, reader: asyncio.StreamReader, most: int = HANDSHAKE) -> None:
        self._reader, self.most = reader, most

    async def readexactly(self, count: int) -> bytes:
        """Exactly these bytes; `ValueError` where a server announces too many."""
        if count > self.most:
            raise ValueError(
                f"the RFB server announces {count} bytes; at most {self.most} can be right here"
            )
        return await self._reader.readexactly(count)

    async def readline(self) -> bytes:
        """A line, of at most 64 KiB."""
        return await self._reader.readline()


async def skip(reader: LimitedReader | asyncio.StreamReader, count: int) -> None:
    """Read and forget, a piece at a time."""
    while count:
        count -= len(await reader.readexactly(min(count, PIECE)))


async def open_limited(
    host: str, port: int
) -> tuple[LimitedReader, asyncio.StreamWriter | NearWriter]:
    """Connect, without a socket where the server is of this event loop: what asyncvnc takes as its
    `opener`."""
    reader, writer = dial_near(host, port) or await asyncio.open_connection(host, port)
    return LimitedReader(reader), writer


def frame_bytes(width: int, height: int) -> int:
    """Bytes of a whole frame; `ValueError` for a screen that cannot be."""
    if not 0 < width * height <= MOST_PIXELS:
        raise ValueError(
            f"the RFB server has a screen of {width}x{height}; expected 1 to {MOST_PIXELS} pixels"
        )
    return 4 * width * height


def bounded_inflate(most: int) -> Callable[[bytes], bytes]:
    """The connection's one zlib stream, which gives at most `most` bytes for a rectangle."""
    stream = zlib.decompressobj()

    def inflate(data: bytes) -> bytes:
        pixels = stream.decompress(data, most)
        if stream.unconsumed_tail:
            raise ValueError(f"a rectangle of the RFB server inflates to more than {most} bytes")
        return pixels

    return inflate
