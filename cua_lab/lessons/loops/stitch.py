"""Stitching in one file: the turns of an episode become training sequences.

Turn k sent a prompt and sampled an output. When the next prompt begins with both, the sequence goes
on, and only what is new in the prompt has to be added, with mask 0. When it does not, history was
written anew, and another sequence starts: no token is trained in a context that it never had.

    turn 0   [ prompt          ][ output ]
    turn 1   [ prompt           + output ][ new ][ output ]        a prefix: one sequence
    turn 2   [ another history                ][ output ]          none: a new sequence

    ids      what the server saw, and sampled
    mask                        [111111111][00000][11111111]

The real one, `cua_lab.stitching.stitch`, adds
- resync: a prompt that only WRITES an output differently (white space, JSON, another split into
  tokens) is adopted with mask 0 instead of starting anew (`cua_lab.stitching.divergence`),
- a prefix of any length checked by one memcmp (`cua_lab.stitching.packed`), here id by id,
- a record of who put each id there (`cua_lab.stitching.stitched`) and of every token that was not
  trained (`cua_lab.stitching.ledger`), limits on length, answers that the token limit cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cua_lab.stitching.turn import Turn


@dataclass(slots=True)
class Stitched:
    """One training sequence."""

    tokens: list[int]  # (T,)
    response_start: int  # the response is tokens[response_start:], R of them
    mask: list[int] = field(default_factory=list)  # (R,) 1: the policy sampled it
    logprobs: list[float] = field(default_factory=list)  # (R,) NaN where the mask is 0


def stitch(turns: Sequence[Turn]) -> list[Stitched]:
    """The sequences of one episode, in order."""
    sequences: list[Stitched] = []
    for turn in turns:
        if turn.output_logprobs is None:
            raise ValueError("a turn without log-probabilities cannot be trained on")
        prompt, output = list(turn.prompt_ids), list(turn.output_ids)

        # 1. Does the prompt begin with all that the sequence holds?
        current = sequences[-1] if sequences else None
        if current is None or prompt[: len(current.tokens)] != current.tokens:
            # 2a. No: the whole prompt is given, nothing of it is trained.
            current = Stitched(prompt, response_start=len(prompt))
            sequences.append(current)
        else:
            # 2b. Yes: what it adds (the screenshot, the next header) was not sampled.
            new = prompt[len(current.tokens) :]
            current.tokens += new
            current.mask += [0] * len(new)
            current.logprobs += [math.nan] * len(new)

        # 3. What the policy sampled, each id with its own log-probability.
        current.tokens += output
        current.mask += [1] * len(output)
        current.logprobs += turn.output_logprobs
    return sequences


def drawn(sequence: Stitched) -> str:
    """Ids as letters, and under each that is trained a mark."""
    marks = " " * sequence.response_start + "".join("^" if m else " " for m in sequence.mask)
    return "".join(map(chr, sequence.tokens)) + "\n" + marks.rstrip()


def said(prompt: str, output: str) -> Turn:
    """A turn whose ids are characters."""
    return Turn(tuple(map(ord, prompt)), tuple(map(ord, output)), tuple(-1.0 for _ in output))


if __name__ == "__main__":
    first = said("user: go. bot: ", "click 3.")
    second = said("user: go. bot: click 3. user: [screen] bot: ", "click 5.")
    rewritten = said("user: go. bot: CLICK 3. user: [screen] bot: ", "click 5.")
    for name, turns in (("repeated", [first, second]), ("rewritten", [first, rewritten])):
        print(f"the second prompt has {name} the first answer:")
        for sequence in stitch(turns):
            print(drawn(sequence))
