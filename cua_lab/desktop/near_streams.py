"""Streams between a client and a server of one event loop, without a socket.

    client's writer ──▶ server's reader     and back

A frame of the embedded desktop went through two sockets and the selector to get from one object of
a process to another. Invariant: the bytes and their order are those of a connection over TCP, and
an end that closes is an end of file for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LIMIT = 2**16
"""Of a line, as asyncio's own streams have it."""
Accept = Callable[[asyncio.StreamReader, Any], None]
_listening: dict[tuple[str, int], tuple[asyncio.AbstractEventLoop, Accept]] = {}


class NearWriter:
    """The writing end; what of `asyncio.StreamWriter` and its transport an RFB peer uses."""

    def __init__(self, own: asyncio.StreamReader, peer: asyncio.StreamReader) -> None:
        """`own` is what this end reads, `peer` what the other one does."""
        self._own, self._peer = own, peer
        self._ended: list[bool] = []  # of the connection: filled by the end that closes first

    @classmethod
    def pair(
        cls, one: asyncio.StreamReader, other: asyncio.StreamReader
    ) -> tuple[NearWriter, NearWriter]:
        """Both ends of a connection; the first reads `one`."""
        first, second = cls(one, other), cls(other, one)
        second._ended = first._ended
        return first, second

    @property
    def transport(self) -> NearWriter:
        return self

    def write(self, data: bytes) -> None:
        """At once; nothing is written once either end has closed."""
        if not self._ended:
            self._peer.feed_data(data)

    async def drain(self) -> None:
        """The reader has it already; `ConnectionResetError` where there is none."""
        if self._ended:
            raise ConnectionResetError("the other end has closed")

    def get_write_buffer_size(self) -> int:
        """Bytes that nobody took yet: none."""
        return 0

    def is_closing(self) -> bool:
        """Whether either end has closed."""
        return bool(self._ended)

    def close(self) -> None:
        """Both ends read what was sent, and then the end of the file."""
        if not self._ended:
            self._ended.append(True)
            self._own.feed_eof()
            self._peer.feed_eof()

    abort = close

    async def wait_closed(self) -> None:
        return None


def listen_near(host: str, port: int, accept: Accept) -> None:
    """Say who takes connections to an address from within this event loop."""
    _listening[host, port] = (asyncio.get_running_loop(), accept)


def stop_near(host: str, port: int) -> None:
    _listening.pop((host, port), None)


def dial_near(host: str, port: int) -> tuple[asyncio.StreamReader, NearWriter] | None:
    """A connection to a server of this event loop; `None` where none listens at this address."""
    loop, accept = _listening.get((host, port), (None, None))
    if accept is None or loop is not asyncio.get_running_loop():
        return None
    ours, theirs = (asyncio.StreamReader(limit=LIMIT, loop=loop) for _ in range(2))
    mine, others = NearWriter.pair(ours, theirs)
    accept(theirs, others)
    return ours, mine
