"""Asking an inference server again, where asking twice does nothing twice.

    RetryTransport(inner) ── no connection, 429, 502, 503, 504 ──▶ wait ──▶ the same bytes again

A chat completion samples and touches no screen, and its seed goes with it: asked again it draws the
same tokens. Invariant: what is repeated is a request that brought no answer, byte for byte; nothing
that was done on a screen is ever done again, for a tool's call never passes here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import httpx

FIRST_S = 0.5
"""Before the second try; each later one waits twice as long."""
LONGEST_S = 30.0
BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may answer in a moment."""
UNHEARD = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadError, httpx.RemoteProtocolError)
"""No answer came. A request that timed out is not among them: it may still be running."""


class RetryTransport(httpx.AsyncBaseTransport):
    """Wraps a transport, which is closed together with it."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        retries: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`retries`: how often a request is sent again; `sleep` waits for so many seconds."""
        self._inner, self._retries, self._sleep = inner, retries, sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The first answer that is one; after the last try whatever came, or the error."""
        await request.aread()
        for tried in range(self._retries):
            try:
                response = await self._inner.handle_async_request(request)
            except UNHEARD:
                await self._sleep(_wait(tried, None))
                continue
            if response.status_code not in BUSY:
                return response
            asked = response.headers.get("retry-after")
            await response.aclose()
            await self._sleep(_wait(tried, asked))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._inner.aclose()


def _wait(tried: int, asked: str | None) -> float:
    """Seconds until the next try: as the server asks, else doubled each time, and spread so that a
    whole group does not come back at once."""
    if asked is not None and asked.isdecimal():
        return float(min(int(asked[:6]), LONGEST_S))
    return float(min(FIRST_S * 2**tried, LONGEST_S)) * random.uniform(0.75, 1.25)
