"""Between HUD's agent and an inference server: HUD asks and reads one contract, servers speak many.

`ShimTransport` is an httpx transport for ONE episode. A chat completion that asks for
`return_token_ids` is rewritten so that the server returns its ids, and the answer so that HUD finds
`choice.prompt_token_ids`, `choice.token_ids` and matching `choice.logprobs`; each is kept in
`turns`, in order. Invariant: whatever is not such a request passes untouched, and such a request
either yields exact ids or raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from cua_lab.errors import LabError
from cua_lab.seeds import turn_seed
from cua_lab.serving.dialects import (
    REQUEST_FLAGS,
    ChoiceTokens,
    Dialect,
    MissingTokenIds,
    read_choice,
)
from cua_lab.serving.request_images import request_images
from cua_lab.serving.sampling_request import stated
from cua_lab.serving.token_in import PATH as GENERATE_PATH
from cua_lab.serving.token_in import TokenIn
from cua_lab.serving.wire import json_bytes
from cua_lab.stitching.turn import Turn

SLOT_HEADER = "x-cua-lab-slot"
"""Names the engine's round-forming slot of this episode."""
HUD_FIELDS = ("prompt_token_ids", "continuation_from", "checkpoint")
"""What HUD adds for its own gateway; no other server should see it."""
NEVER = -100.0
"""The lowest bias that servers allow; e^-100 is 0 in float32."""
_BODY_HEADERS = ("content-length", "content-encoding", "transfer-encoding")


class ShimTransport(httpx.AsyncBaseTransport):
    """Gives HUD exact token ids from any known server, and records the episode's turns."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        *,
        dialect: Dialect = "auto",
        slot: int | None = None,
        seed: int | None = None,
        vocab_size: int | None = None,
        stop_ids: frozenset[int] = frozenset(),
        forbidden_ids: Sequence[int] = (),
        token_in: TokenIn | None = None,
    ) -> None:
        """Wrap `inner`, which is closed together with this transport.

        `seed` is the episode's: each turn samples with a seed derived from it and the number of
        turns so far, so a retried request draws the same tokens. `vocab_size` refuses ids beyond
        the tokenizer's range. `stop_ids` tell an answer that ended exactly at the token limit from
        one that was cut there. `forbidden_ids` are taken out of the distribution by the server
        (`logit_bias`): vLLM and sglang would sample an image pad, and no image would belong to it;
        the embedded engine knows its policy's own. With `token_in`, turns after the first send the
        ids on record instead of the history's text (see `serving.token_in`).
        """
        self.turns: list[Turn] = []
        """Every model call so far, as the server returned it."""
        self._inner = inner
        self._flags = REQUEST_FLAGS[dialect]
        self._slot = slot
        self._seed = seed
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids
        self._forbidden = frozenset(forbidden_ids)
        self._token_in = token_in
        self._history: list[dict[str, Any]] = []  # messages that the last turn answered

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; see the class."""
        if not _is_chat(request):
            return await self._inner.handle_async_request(request)
        asked = _json_object(await request.aread())
        if asked is None or not asked.get("return_token_ids"):
            return await self._inner.handle_async_request(request)
        if asked.get("stream"):
            raise LabError(
                "a stream was asked for together with token ids, and sglang refuses that;"
                " set stream=False to train on this episode"
            )
        response, body = await self._answer(request, self._outgoing(asked))
        if body is None:
            return response
        limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
        choices = [
            read_choice(body, index, max_tokens=limit, stop_ids=self._stop_ids)
            for index in range(max(1, len(body.get("choices") or [])))
        ]
        for tokens in choices:
            self._check_range(tokens)
            self._check_said(tokens)
        turn = choices[0].turn()  # HUD goes on from the first choice
        self.turns.append(replace(turn, images=request_images(asked["messages"])))
        self._history = asked["messages"]
        return _rewritten(response, body, choices)

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._inner.aclose()

    async def _answer(
        self, request: httpx.Request, sent: dict[str, Any]
    ) -> tuple[httpx.Response, dict[str, Any] | None]:
        """The response, and the chat completion in it unless it is an error."""
        token_in = self._token_in if self.turns else None
        url, body = request.url, sent
        if token_in is not None:
            last = self.turns[-1]
            body = token_in.request(sent, self._history, last)
            root = url.path.removesuffix("/chat/completions").removesuffix("/v1")
            url = url.copy_with(path=root + GENERATE_PATH)
        response = await self._inner.handle_async_request(self._rebuilt(request, url, body))
        if response.status_code != 200:
            return response, None
        answer = await _read_answer(response)
        return response, answer if token_in is None else token_in.chat_answer(answer, sent, last)

    def _outgoing(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The body the server gets."""
        body = turn_request(asked, seed=self._seed, turn=len(self.turns))
        body |= self._flags
        if self._forbidden:
            unwanted = {str(token): NEVER for token in sorted(self._forbidden)}
            body["logit_bias"] = unwanted | (body.get("logit_bias") or {})
        return body

    def _rebuilt(
        self, request: httpx.Request, url: httpx.URL, body: dict[str, Any]
    ) -> httpx.Request:
        headers = _without_body_headers(request.headers)
        if self._slot is not None:
            headers[SLOT_HEADER] = str(self._slot)
        return httpx.Request(
            request.method,
            url,
            headers=headers,
            content=json_bytes(body),
            extensions=request.extensions,  # httpx carries the client's timeout here
        )

    def _check_range(self, tokens: ChoiceTokens) -> None:
        if self._vocab_size is None:
            return
        for name, ids in (("prompt", tokens.prompt_ids), ("output", tokens.output_ids)):
            if ids and max(ids) >= self._vocab_size:
                raise LabError(
                    f"the server's {name} has id {max(ids)} but the vocabulary has"
                    f" {self._vocab_size}; is it serving another model?"
                )

    def _check_said(self, tokens: ChoiceTokens) -> None:
        said = sorted(self._forbidden.intersection(tokens.output_ids))
        if said:
            raise LabError(
                f"the server sampled id {said[0]}, which the policy must never say, though"
                " `logit_bias` forbade it; it does not honour the bias, so nothing can be trained"
            )


def turn_request(asked: dict[str, Any], *, seed: int | None, turn: int) -> dict[str, Any]:
    """A request of HUD's agent as any server may see it, with the seed of the episode's turn."""
    body = stated({key: value for key, value in asked.items() if key not in HUD_FIELDS})
    body["logprobs"] = True
    if seed is not None:
        body["seed"] = turn_seed(seed, turn)
    return body


def _is_chat(request: httpx.Request) -> bool:
    return request.method == "POST" and request.url.path.endswith("/chat/completions")


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _without_body_headers(headers: httpx.Headers) -> httpx.Headers:
    kept = headers.copy()
    for name in _BODY_HEADERS:
        kept.pop(name, None)
    return kept


async def _read_answer(response: httpx.Response) -> dict[str, Any]:
    """The decoded body; `aread` undoes gzip and deflate, and br or zstd where their package is."""
    content = await response.aread()
    body = _json_object(content)
    if body is None:
        encoding = response.headers.get("content-encoding", "none")
        raise MissingTokenIds(
            "token ids were asked for and the answer is not a JSON object"
            f" (content-type {response.headers.get('content-type')}, content-encoding {encoding},"
            f" {len(content)} bytes, starts {content[:40]!r})"
        )
    return body


def _rewritten(
    response: httpx.Response, body: dict[str, Any], choices: list[ChoiceTokens]
) -> httpx.Response:
    """The answer HUD reads: decoded, so without the headers that described the old bytes."""
    for choice, tokens in zip(body["choices"], choices, strict=True):
        choice["prompt_token_ids"] = list(tokens.prompt_ids)
        choice["token_ids"] = list(tokens.output_ids)
        choice["logprobs"] = _logprobs_block(choice, tokens)
    return httpx.Response(
        response.status_code,
        headers=_without_body_headers(response.headers),
        content=json_bytes(body),
        extensions=response.extensions,
    )


def _logprobs_block(choice: dict[str, Any], tokens: ChoiceTokens) -> dict[str, Any] | None:
    """`logprobs.content` in step with the ids; `None` unless every id has a log-probability."""
    if tokens.logprobs is None or any(map(math.isnan, tokens.logprobs)):
        return None
    block = choice.get("logprobs")
    content = block.get("content") if isinstance(block, dict) else None
    told = content if isinstance(content, list) else []
    if len(told) == len(tokens.logprobs) and all(isinstance(entry, dict) for entry in told):
        pairs = zip(told, tokens.logprobs, strict=True)
        return {"content": [entry | {"logprob": value} for entry, value in pairs]}
    blank: dict[str, Any] = {"token": "", "bytes": None, "top_logprobs": []}
    return {"content": [blank | {"logprob": value} for value in tokens.logprobs]}
