"""A `RunningSequence` is one output to be; `EngineStats` counts the work.

Invariant: a row's `ids`, `logprobs` and, where asked for, `tops` grow together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from cua_lab.engine.prompt import Prompt
from cua_lab.engine.token_sampling import SamplingParams

LOWEST = torch.finfo(torch.float32).min
"""Reported for an id that cannot be said: JSON has no -inf, and sglang reports this number."""

Top = list[tuple[float, int]]
"""The likeliest ids of one position with their log-probabilities, best first."""


@dataclass(slots=True, eq=False)
class RunningSequence:
    """One output to be, and what became of it."""

    prompt: Prompt
    params: SamplingParams
    seed: int
    index: int
    """Which of the request's `n` choices."""
    max_new: int
    stop_ids: frozenset[int]
    top: int = 0
    """How many alternatives to report per token."""
    score_from: int | None = None
    """Also report the log-probabilities of the prompt's tokens from this index on."""
    decode: Callable[[list[int]], str] | None = None
    """Ids to text, needed where `params.stop` is used."""
    on_token: Callable[[int, float, Top], None] | None = None
    cancelled: Callable[[], bool] = lambda: False

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[Top] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    cached: int = 0
    """Prompt tokens that were not computed for this row."""
    finish: str = ""
    """`stop`, `length` or `abort`; empty while running."""
    matched: int | str | None = None
    """The token id or string that stopped it."""


@dataclass(slots=True)
class EngineStats:
    """Work done so far."""

    batches: int = 0
    rows: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache or shared within the batch."""
    prefill_tokens: int = 0
    """Prompt tokens computed; with `cached_tokens` they make up `prompt_tokens`."""
    decode_tokens: int = 0
    images_encoded: int = 0
    vision_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


def top_of(logprobs: torch.Tensor, count: int) -> list[Top]:
    """The `count` likeliest ids of each row."""
    if not count:
        return []
    values, ids = logprobs.clamp(min=LOWEST).topk(min(count, logprobs.shape[-1]), dim=-1)
    return [
        list(zip(row_values, row_ids, strict=True))
        for row_values, row_ids in zip(values.tolist(), ids.tolist(), strict=True)
    ]


def finish(row: RunningSequence) -> None:
    """Decide whether the row's last token ended it."""
    count = len(row.ids)
    if row.cancelled():
        row.finish = "abort"
    elif count >= row.params.min_tokens and row.ids[-1] in row.stop_ids:
        row.finish, row.matched = "stop", row.ids[-1]
    elif count >= row.params.min_tokens and (stop := _stop_string(row)) is not None:
        row.finish, row.matched = "stop", stop
    elif count >= row.max_new:
        row.finish = "length"


def first_stop(text: str, stops: Sequence[str], *, after: int = 0) -> tuple[int, str] | None:
    """The stop string that begins first among those that end behind `text[:after]`, and where.

    Of two that begin at the same place, the shorter: it is complete first.
    """
    found = [
        (at, len(stop), stop)
        for stop in stops
        if (at := text.find(stop, max(0, after - len(stop) + 1))) >= 0
    ]
    return None if not found else (min(found)[0], min(found)[2])


def text_before(ids: Sequence[int], count: int, decode: Callable[[list[int]], str]) -> int:
    """Characters that the first `count` ids spell, half characters left out."""
    return len(decode(list(ids[:count])).rstrip("\ufffd")) if count > 0 else 0


def _stop_string(row: RunningSequence) -> str | None:
    if not row.params.stop or row.decode is None:
        return None
    # A token adds at least one byte, so a stop string ends within its own length of tokens.
    first = max(0, len(row.ids) - max(len(s.encode()) for s in row.params.stop) - 1)
    tail = row.ids[first:]
    after = text_before(tail, row.params.min_tokens - first, row.decode)
    found = first_stop(row.decode(tail), row.params.stop, after=after)
    return None if found is None else found[1]
