"""Everything that a request says about sampling, so that no server fills in anything of its own.

sglang and vLLM take what a request leaves unsaid from the checkpoint's `generation_config.json`:
Qwen3-VL's asks for top_k 20 and top_p 0.8, Qwen2.5-VL's for top_k 1 and repetition_penalty 1.05.
The tokens are then drawn from another distribution than the log-probabilities describe
(NVIDIA-NeMo/RL#3497, OpenPipe/ART#140, verl#7270). Invariant: a body that went through
`sampling_request` or `stated` leaves none of these options open; `null` counts as unsaid.

| option | OpenAI's API | sglang | vLLM | the embedded engine |
|---|---|---|---|---|
| temperature, top_p, max_tokens | yes | yes | yes | yes |
| presence_penalty, frequency_penalty | yes | yes | yes | 0 only |
| top_k | refused | yes | yes | yes |
| min_p, repetition_penalty | refused | yes | yes | 0 and 1 only |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STANDARD_NEUTRAL: Mapping[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""OpenAI's own fields, with the values that leave the distribution as it is."""
EXTRA_NEUTRAL: Mapping[str, float] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Fields that sglang and vLLM add; a server that knows only OpenAI's may refuse them."""
NEUTRAL: Mapping[str, float] = {**STANDARD_NEUTRAL, **EXTRA_NEUTRAL}


def sampling_request(
    *,
    temperature: float,
    max_tokens: int,
    token_ids: bool = False,
    standard_only: bool = False,
    **options: float | None,
) -> dict[str, Any]:
    """Keyword arguments of `chat.completions.create` that leave nothing about sampling unsaid.

    `options` are fields of `NEUTRAL` that are to have another value; `None` is neutral.
    `token_ids` asks for the ids of prompt and answer. `standard_only` leaves out the fields that
    only sglang and vLLM know, for a server that refuses them: it must then be neutral by itself.
    """
    unknown = sorted(set(options) - set(NEUTRAL))
    if unknown:
        raise TypeError(f"unknown sampling option {unknown[0]!r}; expected one of {list(NEUTRAL)}")
    said = stated({"temperature": temperature, **options})
    request: dict[str, Any] = {name: said[name] for name in STANDARD_NEUTRAL}
    request["max_tokens"] = max_tokens
    extra: dict[str, Any] = {} if standard_only else {name: said[name] for name in EXTRA_NEUTRAL}
    if token_ids:
        extra["return_token_ids"] = True
    return request | ({"extra_body": extra} if extra else {})


def stated(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request with its unsaid options at their neutral values."""
    said = {name: value for name, value in body.items() if value is not None or name not in NEUTRAL}
    return {**NEUTRAL, **said}


def unapplied(generation_config: Any) -> dict[str, Any]:
    """What a checkpoint's generation config asks for that is not neutral.

    Real engines apply it to requests that leave it unsaid; the embedded engine never does.
    """
    asked = {name: getattr(generation_config, name, None) for name in NEUTRAL}
    off = {"top_k": (None, -1, 0)}
    return {
        name: value
        for name, value in asked.items()
        if value not in off.get(name, (None, NEUTRAL[name]))
    }
