"""From turns to training sequences.

Two levels. The first is all of `turn`, `stitched`, `growing` and this file: a prompt that repeats
the last prompt and output adds its new ids as scaffold, mask 0; with one that does not, the
sequence ends, and the rest starts another one or is dropped, and is counted. The second, `resync`,
is asked in between: where only the writing changed (`divergence`, over `align` and `rerender`), the
prompt's ids are adopted with mask 0 and the sequence goes on.

Invariant: after every turn the sequence is exactly what the server saw and sampled, its prompt
followed by its output, so no token is ever trained in a context that it did not have, but for the
`off_context` ones behind adopted ids, which are known.

Cost per turn: one memcmp of the prompt with the last one, and work for the new ids and the last
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cua_lab.stitching.codec import TokenCodec
from cua_lab.stitching.growing import GrowingSequence, MissingLogprobs
from cua_lab.stitching.stitched import Ending, Stitched
from cua_lab.stitching.turn import Turn

AfterRewrite = Literal["truncate", "split"]

DROPPED: dict[Ending, str] = {
    "rewrite": "after a rewrite",
    "truncated": "after a truncated turn",
    "too_long": "longer than max_tokens",
}
"""Reasons in the ledger."""


def stitch(
    turns: Sequence[Turn],
    codec: TokenCodec,
    *,
    after_rewrite: AfterRewrite = "truncate",
    missing_logprobs: MissingLogprobs = "raise",
    max_tokens: int | None = None,
) -> list[Stitched]:
    """Stitch the turns of one episode into sequences, one unless a prompt breaks off.

    `after_rewrite`: keep what came before (`truncate`), or start another sequence with the prompt
    that broke off (`split`). `missing_logprobs`: refuse output without log-probabilities, or keep
    it with mask 0 and count it. `max_tokens`: drop the first turn that does not fit and all
    after it; a cut lies between turns, so no image is ever cut.
    """
    if not turns:
        raise ValueError("an episode without turns cannot be stitched; write it off instead")
    fitting = _fitting(turns, max_tokens)
    sequences: list[Stitched] = []
    part = GrowingSequence(0, turns[0], codec)
    for number, turn in enumerate(turns):
        # Why the sequence cannot take this turn in, if it cannot; its own first prompt it has.
        ending: Ending | None = "too_long" if number >= fitting else None
        if ending is None and number > part.first_turn:
            ending = part.extend_with_prompt(number, turn)
        if ending == "too_long" or (ending and after_rewrite == "truncate"):
            lost = sum(len(later.output_ids) for later in turns[number:])
            return [*sequences, part.finish(ending, {DROPPED[ending]: lost} if lost else {})]
        if ending:
            sequences.append(part.finish(ending))
            part = GrowingSequence(number, turn, codec)
        part.add_output(number, turn, missing_logprobs)
    return [*sequences, part.finish(None)]


def _fitting(turns: Sequence[Turn], max_tokens: int | None) -> int:
    """How many turns, from the first on, are within the limit."""
    if max_tokens is None:
        return len(turns)
    lengths = (len(turn.prompt_ids) + len(turn.output_ids) for turn in turns)
    count = next((n for n, length in enumerate(lengths) if length > max_tokens), len(turns))
    if count == 0:
        raise ValueError(
            f"turn 0 has {len(turns[0].prompt_ids)} + {len(turns[0].output_ids)} tokens, more than"
            f" max_tokens={max_tokens}; raise the limit or send smaller screenshots"
        )
    return count
