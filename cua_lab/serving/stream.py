"""A chat completion as server-sent events, a token at a time.

Text goes out as soon as it is certain: held back are pieces of a character, the beginning of a stop
string, and everything from an opening tool-call tag on, which is parsed when the output is whole
and sent as one delta.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.engine.sequences import Top
from cua_lab.serving.toolcalls import OPEN
from cua_lab.serving.wire import ResponseOptions, json_bytes
from cua_lab.serving.wire_out import ResponseContext, chat_message, token_logprob, usage

Token = tuple[int, int, float, Top]


async def chat_stream(
    engine: Engine, request: GenerationRequest, wanted: ResponseOptions, began: float
) -> AsyncIterator[bytes]:
    """Events of one request; closing the iterator drops it."""
    queue: asyncio.Queue[Token | None] = asyncio.Queue()
    request = replace(request, on_token=lambda *token: queue.put_nowait(token))
    task = asyncio.ensure_future(engine.complete(request))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    chunks = _Chunks(engine, request, wanted)
    try:
        while (token := await queue.get()) is not None:
            for chunk in chunks.token(*token):
                yield _event(chunk)
        generation = await task
        answer = ResponseContext(generation, request, engine.detokenizer, began)
        for chunk in chunks.end(answer):
            yield _event(chunk)
        yield b"data: [DONE]\n\n"
    finally:
        task.cancel()


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json_bytes(chunk) + b"\n\n"


class _Chunks:
    """The chunks of one stream."""

    def __init__(self, engine: Engine, request: GenerationRequest, wanted: ResponseOptions) -> None:
        self.engine = engine
        self.request = request
        self.wanted = wanted
        self.created = int(time.time())
        self.ids: list[list[int]] = [[] for _ in range(request.n)]
        self.sent = [""] * request.n
        self.begun = [False] * request.n
        self.id = uuid.uuid4().hex

    def token(self, index: int, token: int, logprob: float, top: Top) -> list[dict[str, Any]]:
        """What one more token makes certain."""
        out = self._begin(index)
        self.ids[index].append(token)
        delta = self._certain(index)[len(self.sent[index]) :]
        logprobs = None
        if self.wanted.logprobs:
            detokenizer = self.engine.detokenizer
            logprobs = {"content": [token_logprob(detokenizer, token, logprob, top)]}
        if delta or logprobs:
            self.sent[index] += delta
            out.append(self._chunk(index, {"content": delta}, logprobs=logprobs))
        return out

    def end(self, answer: ResponseContext) -> list[dict[str, Any]]:
        """The rest of the text, the tool calls, the finish reasons, the usage."""
        out = []
        for index in range(self.request.n):
            out += self._begin(index)
            message, finish = chat_message(answer, self.wanted, index)
            rest = message["content"].removeprefix(self.sent[index])
            if rest:
                out.append(self._chunk(index, {"content": rest}))
            if message.get("tool_calls"):
                out.append(self._chunk(index, {"tool_calls": message["tool_calls"]}))
            out.append(self._chunk(index, {}, finish=finish))
        if self.wanted.stream_usage:
            out.append(self._frame([]) | {"usage": usage(answer)})
        return out

    def _begin(self, index: int) -> list[dict[str, Any]]:
        if self.begun[index]:
            return []
        self.begun[index] = True
        return [self._chunk(index, {"role": "assistant", "content": ""})]

    def _certain(self, index: int) -> str:
        """The text so far that nothing to come can change."""
        text = self.engine.detokenizer.text(self.ids[index], skip_special=self.wanted.skip_special)
        stops = set(self.request.params.stop_token_ids) | set(self.engine.policy.stop_ids)
        if self.ids[index][-1] in stops:
            return self.sent[index]
        text = text.rstrip("�")
        marks = [*self.request.params.stop, *([OPEN] if self.wanted.tools else [])]
        cut = min([len(text), *(_first_sign(text, mark) for mark in marks)])
        text = text[:cut]
        # White space before a call is stripped from the message.
        return text.rstrip() if self.wanted.tools else text

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": {"reasoning_content": None, **delta},
            "logprobs": logprobs,
            "finish_reason": finish["type"] if finish else None,
            "matched_stop": finish.get("matched") if finish else None,
        }
        return self._frame([choice])

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.wanted.model,
            "choices": choices,
        }


def _first_sign(text: str, mark: str) -> int:
    """Where `mark` begins in `text`, or may be about to begin at its end."""
    found = text.find(mark)
    if found >= 0:
        return found
    for start in range(max(0, len(text) - len(mark) + 1), len(text)):
        if mark.startswith(text[start:]):
            return start
    return len(text)
