"""The published way to stitch, written anew from its description, to measure against.

It walks the whole prompt id by id in every turn, tolerates a difference if a few ids on both sides
decode to the same text without white space, and drops the rest of the episode at any other. It is
slower, and wrong: it takes "a b" for "ab", and five newlines for a rewrite.
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
    position = 0
    while position < len(tokens):
        if position < len(prompt) and tokens[position] == prompt[position]:
            position += 1
            continue
        widths = _same_text(tokens[position:], prompt[position : position + WINDOW], codec)
        if widths is None:
            return None
        ours, theirs = widths
        tokens[position : position + ours] = prompt[position : position + theirs]
        mask[position : position + ours] = [0] * theirs
        logprobs[position : position + ours] = [0.0] * theirs
        position += theirs
    return position


def _same_text(
    tokens: Sequence[int], prompt: Sequence[int], codec: TokenCodec
) -> tuple[int, int] | None:
    for ours in range(1, WINDOW + 1):
        for theirs in range(1, WINDOW + 1):
            if _bare(tokens[:ours], codec) == _bare(prompt[:theirs], codec):
                return ours, theirs
    return None


def _bare(ids: Sequence[int], codec: TokenCodec) -> str:
    return "".join(text_of(ids, codec).split())
