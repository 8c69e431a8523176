"""The published way to stitch, written anew from its description, to measure against.

It walks the whole prompt id by id in every turn, tolerates a difference if a few ids on both sides
decode to the same text without white space, and drops the rest of the episode at any other. A
prompt is checked to its end before anything is replaced. It is slower, and wrong: it takes "a b"
for "ab", and five newlines for a rewrite.
"""

from __future__ import annotations

from collections.abc import Sequence

from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.divergence import text_of
from cua_lab.stitching.turn import Turn

WINDOW = 3
"""Ids looked at on each side of a difference."""


def stitch_by_walking(
    turns: Sequence[Turn], codec: TokenCodec
) -> tuple[list[int], list[int], list[float]]:
    """(tokens, loss mask, log-probabilities) of the part that could be verified."""
    first = turns[0]
    tokens = [*first.prompt_ids, *first.output_ids]
    mask = [0] * len(first.prompt_ids) + [1] * len(first.output_ids)
    logprobs = [0.0] * len(first.prompt_ids) + list(first.output_logprobs or ())
    for turn in turns[1:]:
        at = _verified(tokens, mask, logprobs, turn.prompt_ids, codec)
        if at is None:
            break
        new = turn.prompt_ids[at:]
        tokens += [*new, *turn.output_ids]
        mask += [0] * len(new) + [1] * len(turn.output_ids)
        logprobs += [0.0] * len(new) + list(turn.output_logprobs or ())
    return tokens, mask, logprobs


def _verified(
    tokens: list[int],
    mask: list[int],
    logprobs: list[float],
    prompt: Sequence[int],
    codec: TokenCodec,
) -> int | None:
    """How far the prompt repeats the tokens, its white space taken over; `None`: it does not."""
    here = there = 0
    changes: list[tuple[slice, slice]] = []
    while here < len(tokens):
        if there < len(prompt) and tokens[here] == prompt[there]:
            here, there = here + 1, there + 1
            continue
        widths = _same_text(tokens[here : here + WINDOW], prompt[there : there + WINDOW], codec)
        if widths is None:
            return None  # before anything is replaced
        ours, theirs = widths
        changes.append((slice(here, here + ours), slice(there, there + theirs)))
        here, there = here + ours, there + theirs
    for old, new in reversed(changes):
        taken = prompt[new]
        tokens[old] = taken
        mask[old] = [0] * len(taken)
        logprobs[old] = [0.0] * len(taken)
    return there


def _same_text(
    tokens: Sequence[int], prompt: Sequence[int], codec: TokenCodec
) -> tuple[int, int] | None:
    for ours in range(1, len(tokens) + 1):
        for theirs in range(1, len(prompt) + 1):
            if _bare(tokens[:ours], codec) == _bare(prompt[:theirs], codec):
                return ours, theirs
    return None


def _bare(ids: Sequence[int], codec: TokenCodec) -> str:
    return "".join(text_of(ids, codec).split())
