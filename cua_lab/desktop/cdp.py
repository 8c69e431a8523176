"""The Chrome DevTools protocol over the browser's own pipe: no port, no one else listens.

    call(method, params) ──JSON + NUL──▶ browser ──▶ result | CDPError
                                            └──▶ events, to one handler

Invariant: every call ends: with its result, with the browser's error, with the end of the pipe
(`BrowserGone`) or after its time limit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from cua_lab.waiting import waiting

Event = dict[str, Any]
MESSAGE_LIMIT = 64 * 2**20
"""Bytes of one message; a picture of a large page has a few million."""


class BrowserError(RuntimeError):
    """Something in the browser went wrong: an episode on it measures nothing."""


class CDPError(BrowserError):
    """The browser refused a call."""


class BrowserGone(BrowserError):
    """The browser ended."""


class CDP:
    """One connection. `on_event` is called with each event, in order."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[Event], None],
    ) -> None:
        self._reader, self._writer, self._on_event = reader, writer, on_event
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self.gone = False
        self._listening = asyncio.create_task(self._listen())

    async def call(
        self, method: str, *, session: str | None = None, timeout_s: float = 15.0, **params: Any
    ) -> dict[str, Any]:
        """Call a method, in a target's session or of the browser; its result."""
        if self.gone:
            raise BrowserGone(f"{method}: the browser has ended")
        self._last = number = self._last + 1
        message = {"id": number, "method": method, "params": params}
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(
                json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
            )
            async with waiting(f"Chromium to answer {method}", timeout_s):
                answer = await self._waiting[number]
        except TimeoutError as error:
            raise BrowserError(f"{method}: no answer within {timeout_s:g} s") from error
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise CDPError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    async def close(self) -> None:
        """Stop listening; what is still waiting fails."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()

    async def _listen(self) -> None:
        try:
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" not in message:
                    self._on_event(message)
                    continue
                waiting = self._waiting.get(message["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the pipe ended; `finally` says so to everyone
        finally:
            self.gone = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(BrowserGone("the browser ended before it answered"))
