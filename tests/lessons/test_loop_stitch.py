"""The loop to read and the real stitching agree wherever history is repeated or rewritten."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.lessons.loops.stitch import Stitched, drawn, said, stitch
from cua_lab.stitching import stitch as real
from cua_lab.stitching.codec import TableCodec
from cua_lab.stitching.turn import Turn

CODEC = TableCodec({i: bytes([i]) for i in range(256)}, {})
"""One byte an id."""
texts = st.text(st.sampled_from("abc"), min_size=1, max_size=6)


@st.composite
def episodes(draw: st.DrawFn) -> list[Turn]:
    """Turns whose prompts repeat all that came before, or begin with another first letter."""
    prompt = "p" + draw(texts)
    turns = []
    for _ in range(draw(st.integers(1, 5))):
        output = draw(texts)
        turns.append(said(prompt, output))
        rewritten = draw(st.booleans())
        prompt = ("Q" if rewritten else prompt[0]) + (prompt + output)[1:] + draw(texts)
        prompt = prompt.replace("Q", chr(ord("A") + len(turns)))
    return turns


@given(episodes())
def test_the_sequences_are_those_of_the_real_one(turns: list[Turn]) -> None:
    ours, theirs = stitch(turns), real.stitch(turns, CODEC, after_rewrite="split")
    assert [tuple(s.tokens) for s in ours] == [s.tokens for s in theirs]
    assert [tuple(s.mask) for s in ours] == [s.loss_mask for s in theirs]
    assert [s.response_start for s in ours] == [s.response_start for s in theirs]
    for one, other in zip(ours, theirs, strict=True):
        pairs = zip(one.logprobs, other.logprobs, strict=True)
        assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def only(turns: list[Turn]) -> Stitched:
    (sequence,) = stitch(turns)
    return sequence


def test_what_the_policy_sampled_is_trained_and_what_the_next_prompt_adds_is_not() -> None:
    sequence = only([said("go: ", "left."), said("go: left. seen: ", "up.")])
    assert drawn(sequence) == "go: left. seen: up.\n    ^^^^^       ^^^"


def test_a_rewritten_history_starts_another_sequence() -> None:
    first, second = stitch([said("go: ", "left."), said("go: LEFT. seen: ", "up.")])
    assert drawn(first) == "go: left.\n    ^^^^^"
    assert drawn(second) == "go: LEFT. seen: up.\n                ^^^"


def test_resync_is_what_the_real_one_adds() -> None:
    """The same bytes in other tokens: this loop starts anew, the real one adopts the prompt."""
    codec = TableCodec(CODEC.table | {300: b"le"}, {})
    prompt = tuple(b"go: ")
    turns = [
        Turn(prompt, (300, *b"ft."), (-1.0,) * 4),
        Turn((*prompt, *b"left.", *b" seen: "), tuple(b"up."), (-1.0,) * 3),
    ]
    assert len(stitch(turns)) == 2
    (sequence,) = real.stitch(turns, codec)
    assert bytes(sequence.tokens) == b"go: left. seen: up."
    assert sequence.ledger.resynced > 0


def test_a_turn_without_log_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match="log-probabilities"):
        stitch([Turn((1, 2), (3,))])
