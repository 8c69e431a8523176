"""What inference servers answer, read into one shape.

A `ChoiceTokens` is the exact tokens of one choice of a chat completion. Invariant: ids and
log-probabilities come from the same array of the answer, so one can never be off against the other.
Every function here is pure; where the ids are missing it raises and nothing is re-tokenised.

| server | prompt ids | output ids | log-probabilities |
|---|---|---|---|
| sglang 0.5.13-16 | choice | `meta_info.output_token_logprobs[k][1]` | the same triples |
| sglang 0.5.17 | choice | `choice.token_ids` | triples |
| sglang 0.5.18 and newer | choice | `choice.response_token_ids` | triples |
| vLLM | top level | `choice.token_ids` | `choice.logprobs.content` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cua_lab.errors import LabError
from cua_lab.stitching.turn import Turn, WeightSpan

Dialect = Literal["auto", "sglang", "vllm"]

_SGLANG = {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}
_VLLM = {"return_token_ids": True}
REQUEST_FLAGS: Mapping[str, Mapping[str, bool]] = {
    "auto": _SGLANG,  # vLLM ignores the flags it does not know, with status 200
    "sglang": _SGLANG,
    "vllm": _VLLM,
}
"""Request fields that make each server return its ids."""


MAX_ID = 2**31
"""No vocabulary is larger, and tensors of ids hold no more."""
ROUNDING = 1e-4
"""How far above 0 a log-probability of a low-precision engine may be rounded."""


class MissingTokenIds(LabError):
    """Ids were asked for and the answer has none, or has ids that contradict each other."""


@dataclass(frozen=True, slots=True)
class ChoiceTokens:
    """The exact tokens of one choice."""

    prompt_ids: tuple[int, ...]
    """What the server saw, images expanded."""
    output_ids: tuple[int, ...]
    """What was sampled, the stop token included."""
    logprobs: tuple[float, ...] | None
    """One per output id; NaN where the server gave `null`, `None` where it gave no array."""
    finish_reason: str
    weight_version: str | None
    truncated: bool
    """The token limit was reached before the policy stopped."""
    weight_spans: tuple[WeightSpan, ...] = ()
    """Set when the weights changed while the choice was sampled."""

    def turn(self) -> Turn:
        """The same as a `Turn`."""
        return Turn(
            self.prompt_ids,
            self.output_ids,
            self.logprobs,
            self.finish_reason,
            self.weight_version,
            self.truncated,
            self.weight_spans,
        )


def read_choice(
    body: Mapping[str, Any],
    index: int = 0,
    *,
    max_tokens: int | None = None,
    stop_ids: frozenset[int] = frozenset(),
) -> ChoiceTokens:
    """Read choice `index` of a chat completion of any known dialect.

    `max_tokens` is the request's limit and `stop_ids` the ids that end an answer; with both, an
    answer of exactly `max_tokens` tokens that does not end in a stop id counts as truncated
    whatever its `finish_reason` says.
    """
    choice = _choice(body, index)
    meta = _object(choice, "meta_info")
    triples = _triples(meta)
    output_ids = _output_ids(choice, triples)
    finish_reason = str(choice.get("finish_reason") or "stop")
    count = len(output_ids)
    spans = _weight_spans(meta, count) or _weight_spans(_object(body, "metadata"), count)
    return ChoiceTokens(
        prompt_ids=_prompt_ids(body, choice),
        output_ids=output_ids,
        logprobs=_logprobs(choice, triples, len(output_ids)),
        finish_reason=finish_reason,
        weight_version=_weight_version(meta, body),
        truncated=was_truncated(choice, output_ids, finish_reason, max_tokens, stop_ids),
        weight_spans=spans,
    )


def _choice(body: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    choices = body.get("choices") or []
    if not isinstance(choices, list) or not 0 <= index < len(choices):
        choices = choices if isinstance(choices, list) else []
        raise MissingTokenIds(
            f"the answer has {len(choices)} choices, so there is no choice {index};"
            " is the server an OpenAI-compatible chat endpoint?"
        )
    chosen = choices[index]
    if not isinstance(chosen, dict):
        raise MissingTokenIds(f"choice {index} of the answer is {chosen!r:.60}, not an object")
    return chosen


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that is an object; empty for null or nothing."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MissingTokenIds(f"the answer's `{name}` is {value!r:.60}, not an object")
    return value


def _triples(meta: Mapping[str, Any]) -> list[Any] | None:
    """sglang's `[log-probability, id, text]` of each output token, or `None`."""
    triples = meta.get("output_token_logprobs")
    if triples is None:
        return None
    whole = isinstance(triples, list) and all(isinstance(t, list) and len(t) >= 2 for t in triples)
    if not whole:
        raise MissingTokenIds(
            "`meta_info.output_token_logprobs` must be a list of [log-probability, id, text], got"
            f" {triples!r:.80}"
        )
    return list(triples)


def _prompt_ids(body: Mapping[str, Any], choice: Mapping[str, Any]) -> tuple[int, ...]:
    holders = (choice, body)
    found = [
        _as_ids(holder["prompt_token_ids"], "prompt_token_ids")
        for holder in holders
        if holder.get("prompt_token_ids") is not None
    ]
    if not found:
        raise MissingTokenIds(
            "prompt ids were asked for and did not come: expected `prompt_token_ids` in the choice"
            " (sglang 0.5.13 or newer) or at the top level (vLLM). A router may strip them, or the"
            " server is too old; nothing is re-tokenised here, so nothing could be trained"
        )
    if found[0] != found[-1]:
        raise MissingTokenIds(
            f"the answer's two arrays of prompt ids disagree (choice: {len(found[0])} ids, top"
            f" level: {len(found[-1])} ids)"
        )
    if not found[0]:
        raise MissingTokenIds(
            "the answer's `prompt_token_ids` is empty, and no prompt is: a router may strip the ids"
        )
    return found[0]


def _output_ids(choice: Mapping[str, Any], triples: list[Any] | None) -> tuple[int, ...]:
    named = [key for key in ("response_token_ids", "token_ids") if choice.get(key) is not None]
    found = {key: _as_ids(choice[key], key) for key in named}
    if triples is not None:
        found["meta_info.output_token_logprobs"] = _as_ids([t[1] for t in triples], "triples")
    if not found:
        raise MissingTokenIds(
            "output ids were asked for and did not come: expected `response_token_ids`, `token_ids`"
            " or `meta_info.output_token_logprobs` in the choice. A router may strip them, or the"
            " server is too old (sglang before 0.5.13 has them only in /generate)"
        )
    if len(set(found.values())) > 1:
        sizes = ", ".join(f"{key}: {len(ids)}" for key, ids in found.items())
        raise MissingTokenIds(f"the answer's arrays of output ids disagree ({sizes} ids)")
    return next(iter(found.values()))


def _as_ids(values: Any, name: str) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        raise MissingTokenIds(f"`{name}` is {values!r:.60}, not a list of token ids")
    ids = tuple(values)
    for position, value in enumerate(ids):
        if type(value) is not int or not 0 <= value < MAX_ID:
            raise MissingTokenIds(f"`{name}`[{position}] is {value!r}, not a token id")
    return ids


def _logprobs(
    choice: Mapping[str, Any], triples: list[Any] | None, count: int
) -> tuple[float, ...] | None:
    """From sglang's triples where there are any, else from `logprobs.content`; null is NaN."""
    if triples is not None:
        values = [triple[0] for triple in triples]
    else:
        content = _object(choice, "logprobs").get("content")
        if content is None:
            return None
        if not isinstance(content, list) or not all(isinstance(e, dict) for e in content):
            raise MissingTokenIds(
                f"`logprobs.content` must be a list of objects, got {content!r:.80}"
            )
        values = [entry.get("logprob") for entry in content]
    if len(values) != count:
        raise MissingTokenIds(
            f"the answer has {count} output ids but {len(values)} log-probabilities;"
            " they cannot be matched by position"
        )
    return tuple(_logprob(value, position) for position, value in enumerate(values))


def _logprob(value: Any, position: int) -> float:
    """`null` is NaN; a probability above 1, or of a token that could not come, is refused."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MissingTokenIds(f"log-probability {position} is {value!r:.60}, not a number")
    if value > ROUNDING or value == -math.inf:
        raise MissingTokenIds(
            f"log-probability {position} is {value:g}; a sampled token's is finite and at most 0."
            " Are these scores or probabilities?"
        )
    return float(value)


def was_truncated(
    choice: Mapping[str, Any],
    output_ids: tuple[int, ...],
    finish_reason: str,
    max_tokens: int | None,
    stop_ids: frozenset[int],
) -> bool:
    """Whether the token limit ended an answer; see `read_choice`."""
    if finish_reason == "length":
        return True
    if max_tokens is None or len(output_ids) < max_tokens:
        return False
    matched = choice.get("matched_stop", choice.get("stop_reason"))
    if isinstance(matched, str):  # a stop string ends an answer without a token of its own
        return False
    return not output_ids or output_ids[-1] not in stop_ids | {matched}


def _weight_version(meta: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    version = meta.get("weight_version")
    if version is None:
        version = (body.get("metadata") or {}).get("weight_version")
    return None if version is None else str(version)


def _weight_spans(meta: Mapping[str, Any], count: int) -> tuple[WeightSpan, ...]:
    """The versions within one answer of `count` tokens, if there is more than one."""
    entries = meta.get("weight_versions") or []
    try:
        spans = [WeightSpan(str(e["version"]), int(e["start"]), int(e["end"])) for e in entries]
    except (TypeError, KeyError, ValueError) as error:
        raise MissingTokenIds(
            f"`weight_versions` must be a list of {{version, start, end}}, got {entries!r:.80}"
        ) from error
    kept = tuple(span for span in spans if span.end != span.start)
    if len({span.version for span in kept}) <= 1:
        return ()
    bounds = [0, *(span.end for span in kept)]
    tiled = [span.start for span in kept] == bounds[:-1] and bounds == sorted(set(bounds))
    if not tiled or bounds[-1] != count:
        shown = ", ".join(f"{span.version}: {span.start} to {span.end}" for span in kept)
        raise MissingTokenIds(
            f"`weight_versions` must cover the answer's {count} tokens without gap or overlap, got"
            f" {shown}"
        )
    return kept
