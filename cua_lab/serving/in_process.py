"""Answers of this process, without the wire: a request's body in, an answer's body out.

    ChatClient ──HTTP──▶ ShimTransport ──HTTP──▶ server ──▶ engine      any server
    AnswersClient ─────▶ EngineAnswers ──────────────────▶ engine      the one of this process

Nothing is written as JSON, read again and checked again where both ends are ours. Invariant: the
prompt, the seed, the turn on record and whatever HUD's agent reads of an answer are those of the
wire, and so are the words of a refusal.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import Generation
from cua_lab.errors import LabError
from cua_lab.serving.answers import readable
from cua_lab.serving.client import EngineRefused
from cua_lab.serving.dialects import was_truncated
from cua_lab.serving.request_images import request_images
from cua_lab.serving.shim import turn_request
from cua_lab.serving.wire import Body, WireError
from cua_lab.serving.wire_in import chat_request
from cua_lab.serving.wire_out import ResponseContext, chat_response
from cua_lab.stitching.turn import Turn
from cua_lab.waiting import waiting

_IDS = {"return_token_ids": True}


class InProcess(ABC):
    """Answers the chat completions of ONE episode."""

    @abstractmethod
    async def answer(self, body: Body) -> Body:
        """A `chat.completion`; raises `LabError` for a request that a server answers with 400."""


class EngineAnswers(InProcess):
    """The embedded engine, and the episode's turns: what `ShimTransport` is to a server."""

    def __init__(self, engine: Engine, *, slot: int | None = None, seed: int | None = None) -> None:
        """`slot` and `seed` as of `ShimTransport`."""
        self.turns: list[Turn] = []
        self._engine = engine
        self._slot = slot
        self._seed = seed
        self._stop_ids = frozenset(engine.policy.stop_ids)

    async def answer(self, body: Body) -> Body:
        """See the class; a request that asks for no ids is answered and not recorded."""
        began = time.perf_counter()
        recorded = bool(body.get("return_token_ids"))
        sent = body
        if recorded:
            sent = turn_request(body, seed=self._seed, turn=len(self.turns)) | _IDS
        try:
            request, wanted = chat_request(
                sent, self._engine, slot=self._slot if recorded else None
            )
        except RecursionError as error:
            raise WireError("the body is nested too deeply", "Bad Request") from error
        if wanted.stream:
            raise LabError("answers of this process are not streamed; set stream=False")
        generation = await self._engine.complete(request)
        spoken = ResponseContext(generation, request, self._engine.detokenizer, began)
        # HUD reads ids and numbers alone: the texts of the tokens are for those who look at JSON.
        answer = chat_response(spoken, replace(wanted, logprobs=False, meta_info=False))
        if recorded:
            for choice, said in zip(answer["choices"], generation.choices, strict=True):
                choice["token_ids"] = choice.pop("response_token_ids")
                choice["logprobs"] = {"content": [{"logprob": value} for value in said.logprobs]}
            self.turns.append(self._turn(generation, answer["choices"][0], sent))
        return answer

    def _turn(self, generation: Generation, choice: Body, sent: Body) -> Turn:
        said = generation.choices[0]
        if not all(map(math.isfinite, said.logprobs)):
            raise ValueError(f"the engine gave log-probabilities {said.logprobs}, not all finite")
        finish = str(choice["finish_reason"])
        limit = sent.get("max_completion_tokens", sent.get("max_tokens"))
        return Turn(
            tuple(choice["prompt_token_ids"]),
            said.ids,
            said.logprobs,
            finish,
            generation.weight_version,
            was_truncated(choice, said.ids, finish, limit, self._stop_ids),
            images=request_images(sent["messages"]),
        )


class AnswersClient:
    """The one call of the OpenAI SDK that HUD's agent makes, answered in this process."""

    def __init__(self, answers: InProcess) -> None:
        self._answers = answers
        self.chat = SimpleNamespace(completions=self)

    async def create(self, *, extra_body: dict[str, Any] | None = None, **body: Any) -> Answered:
        """Ask; a request that a server would refuse raises `EngineRefused` in the same words."""
        asked = sum(message.get("role") == "assistant" for message in body.get("messages", ()))
        async with waiting(f"the model's answer to turn {asked + 1}"):
            try:
                answer = await self._answers.answer(body | (extra_body or {}))
            except LabError as error:
                raise EngineRefused(f"status 400: {error}") from error
        return Answered(readable(answer))


class Answered:
    """A JSON object with its fields as attributes, as the SDK's types have them; `None` where a
    field is missing."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _answered(self._fields.get(name))

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """The object itself, as pydantic's method of this name gives it."""
        return {k: v for k, v in self._fields.items() if v is not None or not exclude_none}


def _answered(value: Any) -> Any:
    if isinstance(value, dict):
        return Answered(value)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [Answered(one) for one in value]
    return value
