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

import math
from collections.abc import Mapping, Sequence
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
    meta = choice.get("meta_info") or {}
    triples = meta.get("output_token_logprobs")
    output_ids = _output_ids(choice, triples)
    finish_reason = str(choice.get("finish_reason") or "stop")
    spans = _weight_spans(meta) or _weight_spans(body.get("metadata") or {})
    return ChoiceTokens(
        prompt_ids=_prompt_ids(body, choice),
        output_ids=output_ids,
        logprobs=_logprobs(choice, triples, len(output_ids)),
        finish_reason=finish_reason,
        weight_version=_weight_version(meta, body),
        truncated=_truncated(choice, output_ids, finish_reason, max_tokens, stop_ids),
        weight_spans=spans,
    )


def _choice(body: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    choices = body.get("choices") or []
    if not 0 <= index < len(choices):
        raise MissingTokenIds(
            f"the answer has {len(choices)} choices, so there is no choice {index};"
            " is the server an OpenAI-compatible chat endpoint?"
        )
    chosen: Mapping[str, Any] = choices[index]
    return chosen


def _prompt_ids(body: Mapping[str, Any], choice: Mapping[str, Any]) -> tuple[int, ...]:
    ids = choice.get("prompt_token_ids")
    if ids is None:
        ids = body.get("prompt_token_ids")
    if ids is None:
        raise MissingTokenIds(
            "prompt ids were asked for and did not come: expected `prompt_token_ids` in the choice"
            " (sglang 0.5.13 or newer) or at the top level (vLLM). A router may strip them, or the"
            " server is too old; nothing is re-tokenised here, so nothing could be trained"
        )
    return _as_ids(ids, "prompt_token_ids")


def _output_ids(choice: Mapping[str, Any], triples: Any) -> tuple[int, ...]:
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


def _as_ids(values: Sequence[Any], name: str) -> tuple[int, ...]:
    ids = tuple(values)
    for position, value in enumerate(ids):
        if type(value) is not int or value < 0:
            raise MissingTokenIds(f"`{name}`[{position}] is {value!r}, not a token id")
    return ids


def _logprobs(choice: Mapping[str, Any], triples: Any, count: int) -> tuple[float, ...] | None:
    """From sglang's triples where there are any, else from `logprobs.content`; null is NaN."""
    if triples is not None:
        values = [triple[0] for triple in triples]
    else:
        content = (choice.get("logprobs") or {}).get("content")
        if content is None:
            return None
        values = [entry.get("logprob") for entry in content]
    if len(values) != count:
        raise MissingTokenIds(
            f"the answer has {count} output ids but {len(values)} log-probabilities;"
            " they cannot be matched by position"
        )
    return tuple(math.nan if value is None else float(value) for value in values)


def _truncated(
    choice: Mapping[str, Any],
    output_ids: tuple[int, ...],
    finish_reason: str,
    max_tokens: int | None,
    stop_ids: frozenset[int],
) -> bool:
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


def _weight_spans(meta: Mapping[str, Any]) -> tuple[WeightSpan, ...]:
    """The versions within one answer, if there is more than one."""
    entries = meta.get("weight_versions") or []
    spans = (WeightSpan(str(e["version"]), int(e["start"]), int(e["end"])) for e in entries)
    kept = tuple(span for span in spans if span.end > span.start)
    return kept if len({span.version for span in kept}) > 1 else ()
