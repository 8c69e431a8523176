"""The only way out of a desktop's browser: a proxy that knows which ports the page may reach.

    page ──http, ws──▶ browser ──every request──▶ PageProxy ──port allowed?──▶ 127.0.0.1:port
                                                      └── no ──▶ hung up on, and noted

A web page may send requests to any server on this machine (an engine, a notebook, a model server),
and such a server takes them for the user's. Invariant: bytes from the browser reach a loopback port
in `ports` and nothing else; names are not resolved at all.

Not closed by it: what the allowed port itself does for a page, and what a process of the same user
that is no page can do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Self
from urllib.parse import urlsplit

HOST = "127.0.0.1"
HEAD_LIMIT = 256 * 1024
"""Bytes of a request's head; cookies make it long."""
PIECE = 64 * 1024
NOTES_KEPT = 20
OWN_HEADERS = (b"connection:", b"proxy-connection:", b"keep-alive:")
TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"


class PageProxy:
    """One browser's proxy; `await` it in the loop in which it is to serve."""

    def __init__(self) -> None:
        self.ports: set[int] = set()
        """Loopback ports that may be reached now."""
        self.notes: list[str] = []
        """What was refused or did not answer, the last at the end."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=HEAD_LIMIT)
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # LimitOverrunError is neither: a head that long is not a browser's
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                await self._forward(reader, writer)
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        tunnel = method == "CONNECT"
        host, port = address_of(f"//{target}" if tunnel else target)
        if port not in self.ports or not is_loopback_name(host):
            self._note(f"{host}:{port} is none of the page's own servers")
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(HOST, port)
        except OSError as error:
            self._note(f"{host}:{port}: {os.strerror(error.errno or 0)}")
            raise
        try:
            (writer if tunnel else up_writer).write(TUNNEL if tunnel else direct(head))
            await _both_ways((reader, up_writer), (up_reader, writer))
        finally:
            up_writer.close()

    def _note(self, note: str) -> None:
        self.notes = [*self.notes, note][-NOTES_KEPT:]


def address_of(url: str) -> tuple[str, int | None]:
    """Host and port of an absolute address; `ValueError` for a port that is none."""
    parts = urlsplit(url)
    default = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(parts.scheme)
    return parts.hostname or "", parts.port or default


def is_loopback_name(host: str) -> bool:
    """Whether a host name means this machine to a browser, without asking anybody."""
    return host in (HOST, "localhost") or host.endswith(".localhost")


def direct(head: bytes) -> bytes:
    """A request's head as the server itself is sent it, on a connection that ends after it."""
    first, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, version = first.split(b" ", 2)
    parts = urlsplit(target.decode("latin-1"))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [header for header in headers if not header.lower().startswith(OWN_HEADERS)]
    lines = [b" ".join((method, path.encode("latin-1"), version)), *kept, b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _both_ways(there: Way, back: Way) -> None:
    """Copy until the server has said all; what the browser still sends is then of no use."""
    asking = asyncio.create_task(_copy(*there))
    try:
        await _copy(*back)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()
