"""Bodies of requests, read as sglang reads them.

What sglang ignores is ignored (unknown fields, `model`); what would change the sampling and cannot
be done here is refused, never ignored (`regex`, penalties, a required tool).
"""

import json
from typing import Any

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.engine.token_sampling import SamplingParams
from cua_lab.pictures import data_url_of
from cua_lab.policy.template import images_of
from cua_lab.serving.wire import Body, ResponseOptions, WireError

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


def chat_request(
    body: Body, engine: Engine, *, slot: int | None
) -> tuple[GenerationRequest, ResponseOptions]:
    """Read a `/v1/chat/completions` body."""
    _refuse_unknown_sampling(body)
    messages = _messages(body)
    wanted = _wanted(body)
    params = _params(
        body,
        engine.policy.vocab_size,
        max_tokens=_integer(body, "max_completion_tokens", None)
        if body.get("max_completion_tokens") is not None
        else _integer(body, "max_tokens", None),
        min_tokens=_integer(body, "min_tokens", 0),
    )
    ids = body.get("input_ids")
    tools = body.get("tools") if body.get("tool_choice") != "none" else None
    return (
        GenerationRequest(
            prompt=engine.chats.get(messages, tools, None if ids is None else _ids(ids)),
            params=params,
            n=_integer(body, "n", 1) or 1,
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
    ids = body.get("input_ids")
    if ids is None:
        if not isinstance(body.get("text"), str):
            raise WireError("Either text or input_ids should be provided.", "Bad Request")
        ids = engine.policy.tokenizer(body["text"], add_special_tokens=False)["input_ids"]
    start = _integer(body, "logprob_start_len", -1)
    scored = bool(body.get("return_logprob")) and start is not None and start >= 0
    return GenerationRequest(
        prompt=engine.prompt(_ids(ids), _image_data(body.get("image_data"))),
        params=_params(
            params,
            engine.policy.vocab_size,
            max_tokens=_integer(params, "max_new_tokens", 128),
            min_tokens=_integer(params, "min_new_tokens", 0),
        ),
        n=_integer(params, "n", 1) or 1,
        top=_integer(body, "top_logprobs_num", 0) or 0,
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
        for call in message.get("tool_calls") or []:
            if not _is_json(call.get("function", {}).get("arguments", "{}")):
                raise WireError(
                    "Assistant tool call function.arguments must be valid JSON.", "BadRequest"
                )
    return messages


def _is_json(arguments: Any) -> bool:
    try:
        json.loads(arguments) if isinstance(arguments, str) else None
    except json.JSONDecodeError:
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
        top=(_integer(body, "top_logprobs", 0) or 0) if body.get("logprobs") else 0,
        prompt_ids=bool(body.get("return_prompt_token_ids") or body.get("return_token_ids")),
        output_ids=bool(body.get("return_token_ids")),
        meta_info=bool(body.get("return_meta_info")),
        stream=stream,
        stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        skip_special=body.get("skip_special_tokens", True) is not False,
        trim_stop=not body.get("no_stop_trim"),
    )


def _tool_names(body: Body) -> tuple[str, ...]:
    if body.get("tool_choice") == "none":
        return ()
    tools = body.get("tools") or []
    try:
        return tuple(tool["function"]["name"] for tool in tools)
    except (TypeError, KeyError) as error:
        raise WireError(
            'every tool must be {"type": "function", "function": {"name": ...}}', "Bad Request"
        ) from error


def _params(
    body: Body, vocabulary: int, *, max_tokens: int | None, min_tokens: int | None
) -> SamplingParams:
    stop = body.get("stop") or ()
    return SamplingParams(
        temperature=_number(body, "temperature", 1.0),
        top_p=_number(body, "top_p", 1.0),
        top_k=_integer(body, "top_k", -1) or -1,
        max_tokens=max_tokens,
        seed=_integer(body, "seed" if "seed" in body else "sampling_seed", None),
        stop=(stop,) if isinstance(stop, str) else tuple(str(s) for s in stop),
        stop_token_ids=tuple(_ids(body.get("stop_token_ids") or ())),
        ignore_eos=bool(body.get("ignore_eos")),
        min_tokens=min_tokens or 0,
        logit_bias=_biases(body.get("logit_bias") or {}, vocabulary),
    )


def _biases(value: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    """`{"id": bias}` as on the wire, within the limits that sglang and OpenAI set."""
    if not isinstance(value, dict):
        raise WireError('logit_bias must be an object {"id": bias}', "Bad Request")
    for key, bias in value.items():
        if not str(key).isdecimal() or int(key) >= vocabulary:
            raise WireError(f"logit_bias names id {key!r}; ids are 0 to {vocabulary - 1}.")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise WireError(f"logit_bias of id {key} must be from -100 to 100, got {bias!r}.")
    return tuple((int(key), float(bias)) for key, bias in value.items())


def _refuse_unknown_sampling(body: Body) -> None:
    for name, neutral in NEUTRAL.items():
        if name in body and body[name] not in neutral:
            raise WireError(
                f"{name}={body[name]!r} is not supported by the embedded engine; leave it out, or"
                " serve the policy with sglang or vLLM."
            )


def _number(body: Body, name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"{name} must be a number, got {value!r}.", "Bad Request")
    return float(value)


def _integer(body: Body, name: str, default: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"{name} must be an integer, got {value!r}.", "Bad Request")
    return value


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list | tuple) or not all(type(i) is int for i in value):
        raise WireError("input_ids must be a list of integers", "Bad Request")
    return list(value)


def _image_data(value: Any) -> list[bytes]:
    """`image_data`: one data URL or bare base64, or a list of them."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    urls = [item if str(item).startswith("data:") else data_url_of(item) for item in items]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return images_of([{"role": "user", "content": parts}])
