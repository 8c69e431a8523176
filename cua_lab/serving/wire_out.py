"""Generations as sglang's JSON.

Invariant: ids, log-probabilities and triples of one output come from the same arrays, in order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cua_lab.engine.detokenizer import Detokenizer
from cua_lab.engine.generation import Choice, Generation, GenerationRequest
from cua_lab.engine.sequences import Top, first_stop, text_before
from cua_lab.serving.toolcalls import parse_tool_calls
from cua_lab.serving.wire import Body, ResponseOptions


@dataclass(frozen=True, slots=True)
class ResponseContext:
    """One generation on its way out."""

    generation: Generation
    request: GenerationRequest
    detokenizer: Detokenizer
    began: float
    """`time.perf_counter()` when the request came in."""

    def id(self, index: int = 0) -> str:
        """The request's id: as unique as its seed, slot and prompt, and the same in every run."""
        choice = self.generation.choices[index]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((choice.seed, index, self.request.slot)).encode())
        digest.update(self.generation.prompt.cache_ids.tobytes())
        return digest.hexdigest()

    def text(self, choice: Choice, *, skip_special: bool = True, trim: bool = True) -> str:
        """What was said, without what ended it."""
        ids: Sequence[int] = choice.ids
        if trim and choice.finish == "stop" and isinstance(choice.matched, int):
            ids = ids[:-1]
        text = self.detokenizer.text(ids, skip_special=skip_special)
        if trim and isinstance(choice.matched, str):
            after = text_before(
                choice.ids,
                self.request.params.min_tokens,
                lambda some: self.detokenizer.text(some, skip_special=skip_special),
            )
            found = first_stop(text, (choice.matched,), after=after)
            text = text if found is None else text[: found[0]]
        return text

    def image_tokens(self) -> int:
        """Prompt tokens that are pixels."""
        return sum(image.tokens for image in self.generation.prompt.images)


def chat_response(answer: ResponseContext, wanted: ResponseOptions) -> Body:
    """A `chat.completion`."""
    choices = [
        _chat_choice(answer, wanted, index) for index in range(len(answer.generation.choices))
    ]
    return {
        "id": answer.id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": wanted.model,
        "choices": choices,
        "usage": usage(answer),
        "metadata": {
            "weight_version": answer.generation.weight_version,
            "weight_versions": _versions(answer, answer.generation.choices[0]),
        },
    }


def _chat_choice(answer: ResponseContext, wanted: ResponseOptions, index: int) -> Body:
    choice = answer.generation.choices[index]
    message, finish = chat_message(answer, wanted, index)
    out: Body = {
        "index": index,
        "message": message,
        "logprobs": {"content": _content(answer.detokenizer, choice)} if wanted.logprobs else None,
        "finish_reason": finish["type"],
        "matched_stop": finish.get("matched"),
    }
    if wanted.prompt_ids:
        out["prompt_token_ids"] = answer.generation.prompt.ids.tolist()
    if wanted.output_ids:
        out["response_token_ids"] = list(choice.ids)
    if wanted.meta_info:
        out["meta_info"] = meta_info(answer, index, finish, logprobs=wanted.logprobs)
    return out


def chat_message(answer: ResponseContext, wanted: ResponseOptions, index: int) -> tuple[Body, Body]:
    """The assistant's message, tool calls parsed, and the finish reason."""
    choice = answer.generation.choices[index]
    text = answer.text(choice, skip_special=wanted.skip_special, trim=wanted.trim_stop)
    message: Body = {"role": "assistant", "content": text, "reasoning_content": None}
    finish = finish_reason(choice)
    if not wanted.tools:
        return message, finish
    parsed = parse_tool_calls(text, wanted.tools)
    message["content"] = parsed.text
    if parsed.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{_call_id(answer.id(index), number)}",
                "index": number,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(parsed.calls)
        ]
        if finish["type"] == "stop":
            finish = {"type": "tool_calls", "matched": None}
    return message, finish


def generate_response(answer: ResponseContext, body: Body) -> Body | list[Body]:
    """A native `/generate` answer; a list when `n` choices were asked for."""
    params = body.get("sampling_params") or {}
    answers = []
    for index, choice in enumerate(answer.generation.choices):
        out: Body = {
            "text": answer.text(
                choice,
                skip_special=params.get("skip_special_tokens", True) is not False,
                trim=not params.get("no_stop_trim"),
            ),
            "output_ids": list(choice.ids),
            "meta_info": meta_info(
                answer, index, finish_reason(choice), logprobs=bool(body.get("return_logprob"))
            ),
        }
        if body.get("return_prompt_token_ids"):
            out["prompt_token_ids"] = answer.generation.prompt.ids.tolist()
        answers.append(out)
    return answers if len(answers) > 1 else answers[0]


def finish_reason(choice: Choice) -> Body:
    """sglang's finish reason."""
    if choice.finish == "length":
        return {"type": "length", "length": len(choice.ids)}
    return {"type": choice.finish, "matched": choice.matched}


def meta_info(answer: ResponseContext, index: int, finish: Body, *, logprobs: bool) -> Body:
    """Everything sglang tells about one output."""
    generation, choice = answer.generation, answer.generation.choices[index]
    cached = generation.cached_tokens
    out: Body = {
        "id": answer.id(index),
        "finish_reason": finish,
        "prompt_tokens": len(generation.prompt),
        "weight_version": generation.weight_version,
        "num_retractions": 0,
    }
    if logprobs:
        token = answer.detokenizer.token
        out["input_token_logprobs"] = _scored(answer)
        out["output_token_logprobs"] = [
            [lp, id_, token(id_)] for lp, id_ in zip(choice.logprobs, choice.ids, strict=True)
        ]
        out["output_token_logprobs_length"] = len(choice.ids)
        if answer.request.top:
            out["input_top_logprobs"] = []
            out["output_top_logprobs"] = [
                [[lp, id_, token(id_)] for lp, id_ in top] for top in choice.tops
            ]
    out |= {
        "reasoning_tokens": 0,
        "completion_tokens": len(choice.ids),
        "cached_tokens": cached,
        "weight_versions": _versions(answer, choice),
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
        "e2e_latency": time.perf_counter() - answer.began,
        "response_sent_to_client_ts": time.time(),
    }
    if generation.prompt.images:
        out["image_tokens"] = answer.image_tokens()
    return out


def _scored(answer: ResponseContext) -> list[list[Any]]:
    """The prompt's log-probabilities as triples; the first one scored has none."""
    start = answer.request.score_from
    if start is None:
        return []
    ids = answer.generation.prompt.ids[start:].tolist()
    # sglang gives the token at `start` no log-probability: nothing before it was scored.
    known = answer.generation.prompt_logprobs
    scores: list[float | None] = [None, *known[len(known) - len(ids) + 1 :]]
    token = answer.detokenizer.token
    return [[lp, id_, token(id_)] for lp, id_ in zip(scores, ids, strict=True)]


def usage(answer: ResponseContext) -> Body:
    """Token counts; the prompt counts once however many choices."""
    generation = answer.generation
    prompt = len(generation.prompt)
    completion = sum(len(choice.ids) for choice in generation.choices)
    details: Body = {"cached_tokens": generation.cached_tokens}
    if generation.prompt.images:
        details["image_tokens"] = answer.image_tokens()
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": details,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def _versions(answer: ResponseContext, choice: Choice) -> list[Body]:
    version = answer.generation.weight_version
    return [{"version": version, "start": 0, "end": len(choice.ids)}]


def _content(detokenizer: Detokenizer, choice: Choice) -> list[Body]:
    tops: Sequence[Top] = choice.tops or [[]] * len(choice.ids)
    return [
        token_logprob(detokenizer, id_, lp, top)
        for id_, lp, top in zip(choice.ids, choice.logprobs, tops, strict=False)
    ]


def token_logprob(detokenizer: Detokenizer, id_: int, logprob: float, top: Top) -> Body:
    """One token of OpenAI's `logprobs.content`."""

    def one(token_id: int, value: float) -> Body:
        text = detokenizer.token(token_id)
        return {"token": text, "bytes": list(text.encode()), "logprob": value}

    return one(id_, logprob) | {"top_logprobs": [one(i, lp) for lp, i in top]}


def _call_id(request_id: str, number: int) -> str:
    return hashlib.blake2b(f"{request_id} {number}".encode(), digest_size=12).hexdigest()
