"""Bodies of requests, read as sglang reads them.

What sglang ignores is ignored (unknown fields, `model`); what would change the sampling and cannot
be done here is refused, never ignored (`regex`, penalties, a required tool).
"""

from __future__ import annotations

import json
from typing import Any

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.pictures import data_url_of
from cua_lab.policy.spelling import encode_text
from cua_lab.policy.template import images_of
from cua_lab.serving.wire import Body, ResponseOptions, WireError
from cua_lab.serving.wire_values import (
    biases,
    count,
    field_object,
    ids,
    integer,
    number,
    seed,
    stop_strings,
    text_size,
)

ROLES = ("system", "assistant", "tool", "user")
NEUTRAL = {
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "min_p": (0, None),
    "regex": (None,),
    "ebnf": (None,),
    "json_schema": (None,),
    "response_format": (None, {"type": "text"}),
    "tool_choice": ("auto", "none", None),
}
"""Options that this engine does not have, and the values that ask for nothing."""
CHARACTERS_PER_TOKEN = 32
"""More text than this for each token of the context cannot fit; 1 MB took 4 to 7 s to find out."""
LEAST_CHARACTERS = 2**16


def chat_request(
    body: Body, engine: Engine, *, slot: int | None
) -> tuple[GenerationRequest, ResponseOptions]:
    """Read a `/v1/chat/completions` body."""
    _refuse_unknown_sampling(body)
    messages = _messages(body)
    wanted = _wanted(body)
    _check_text(engine, messages, body.get("tools"))
    params = _params(
        body,
        engine.policy.vocab_size,
        max_tokens=integer(body, "max_completion_tokens", None)
        if body.get("max_completion_tokens") is not None
        else integer(body, "max_tokens", None),
        min_tokens=integer(body, "min_tokens", 0),
    )
    given = body.get("input_ids")
    tools = body.get("tools") if body.get("tool_choice") != "none" else None
    return (
        GenerationRequest(
            prompt=engine.chats.get(
                messages, tools, None if given is None else ids(given, "input_ids")
            ),
            params=params,
            n=integer(body, "n", 1) or 1,
            top=wanted.top,
            slot=slot,
        ),
        wanted,
    )


def generate_request(body: Body, engine: Engine, *, slot: int | None) -> GenerationRequest:
    """Read a native `/generate` body: ids with one image token per image, or text."""
    params = body.get("sampling_params") or {}
    if not isinstance(params, dict):
        raise WireError("sampling_params must be one object; batches are not served", "Bad Request")
    _refuse_unknown_sampling(params)
    given = body.get("input_ids")
    if given is None:
        if not isinstance(body.get("text"), str):
            raise WireError("Either text or input_ids should be provided.", "Bad Request")
        _check_text(engine, body["text"])
        given = encode_text(engine.policy.tokenizer, body["text"])
    start = integer(body, "logprob_start_len", -1)
    scored = bool(body.get("return_logprob")) and start is not None and start >= 0
    prompt = engine.prompt(ids(given, "input_ids"), _image_data(body.get("image_data")))
    if scored and start is not None and start >= len(prompt):
        raise WireError(f"logprob_start_len is {start}, but the prompt has {len(prompt)} tokens.")
    return GenerationRequest(
        prompt=prompt,
        params=_params(
            params,
            engine.policy.vocab_size,
            max_tokens=integer(params, "max_new_tokens", 128),
            min_tokens=integer(params, "min_new_tokens", 0),
        ),
        n=integer(params, "n", 1) or 1,
        top=count(body, "top_logprobs_num", 0),
        score_from=start if scored else None,
        slot=slot,
    )


def _messages(body: Body) -> list[Body]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireError("messages must be a non-empty list", "Bad Request")
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise WireError(
                f"1 validation errors:\n  ('body', 'messages', {index}, 'role'): 'role' must be"
                f" one of {', '.join(repr(r) for r in ROLES)}, got {role!r}.",
                "Bad Request",
            )
        _check_calls(message.get("tool_calls"), index)
    return messages


def _check_calls(calls: Any, index: int) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise WireError(f"messages[{index}].tool_calls must be a list", "Bad Request")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise WireError(
                f'messages[{index}].tool_calls must hold {{"function": {{"name": ..., "arguments":'
                " ...}}",
                "Bad Request",
            )
        if not _is_json(function.get("arguments", "{}")):
            raise WireError(
                "Assistant tool call function.arguments must be valid JSON.", "BadRequest"
            )


def _check_text(engine: Engine, *said: Any) -> None:
    limit = max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * engine.context_length)
    size = text_size(list(said))
    if size > limit:
        raise WireError(
            f"The input has {size} characters of text; a context of {engine.context_length}"
            f" tokens has no room for more than {limit}."
        )


def _is_json(arguments: Any) -> bool:
    try:
        json.loads(arguments) if isinstance(arguments, str) else None
    except (ValueError, RecursionError):
        return False
    return True


def _wanted(body: Body) -> ResponseOptions:
    stream = bool(body.get("stream"))
    for flag, where in (
        ("return_token_ids", " on /v1/chat/completions"),
        ("return_prompt_token_ids", ""),
        ("return_meta_info", ""),
    ):
        if stream and body.get(flag):
            raise WireError(
                f"{flag} is not supported with streaming{where}."
                f" Please set stream=false when using {flag}=true.",
                "BadRequest",
            )
    return ResponseOptions(
        model=str(body.get("model", "default")),
        tools=_tool_names(body),
        logprobs=bool(body.get("logprobs")),
        top=count(body, "top_logprobs", 0) if body.get("logprobs") else 0,
        prompt_ids=bool(body.get("return_prompt_token_ids") or body.get("return_token_ids")),
        output_ids=bool(body.get("return_token_ids")),
        meta_info=bool(body.get("return_meta_info")),
        stream=stream,
        stream_usage=bool(field_object(body, "stream_options").get("include_usage")),
        skip_special=body.get("skip_special_tokens", True) is not False,
        trim_stop=not body.get("no_stop_trim"),
    )


def _tool_names(body: Body) -> tuple[str, ...]:
    if body.get("tool_choice") == "none":
        return ()
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise WireError("tools must be a list", "Bad Request")
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    names = [f.get("name") if isinstance(f, dict) else None for f in functions]
    if not all(isinstance(name, str) for name in names):
        raise WireError(
            'every tool must be {"type": "function", "function": {"name": ...}}', "Bad Request"
        )
    return tuple(str(name) for name in names)


def _params(
    body: Body, vocabulary: int, *, max_tokens: int | None, min_tokens: int | None
) -> SamplingParams:
    return SamplingParams(
        temperature=number(body, "temperature", 1.0),
        top_p=number(body, "top_p", 1.0),
        top_k=integer(body, "top_k", -1) or -1,
        max_tokens=max_tokens,
        seed=seed(body),
        stop=stop_strings(body.get("stop")),
        stop_token_ids=tuple(ids(body.get("stop_token_ids") or (), "stop_token_ids")),
        ignore_eos=bool(body.get("ignore_eos")),
        min_tokens=min_tokens or 0,
        logit_bias=biases(body.get("logit_bias") or {}, vocabulary),
    )


def _refuse_unknown_sampling(body: Body) -> None:
    for name, neutral in NEUTRAL.items():
        if name in body and body[name] not in neutral:
            raise WireError(
                f"{name}={body[name]!r:.60} is not supported by the embedded engine; leave it out,"
                " or serve the policy with sglang or vLLM."
            )


def _image_data(value: Any) -> list[bytes]:
    """`image_data`: one data URL or bare base64, or a list of them."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    urls = [item if str(item).startswith("data:") else data_url_of(item) for item in items]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return images_of([{"role": "user", "content": parts}])
