"""What holds for any episode, with single bytes and with the real Qwen BPE.

200 episodes each as a rule; `HYPOTHESIS_PROFILE=nightly` generates 5,000 and more.
"""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.stitching.ledger import total
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.stitched import Stitched
from cua_lab.stitching.turn import Turn
from tests.stitching.generated import KITS, episodes

kits = pytest.mark.parametrize("kit", sorted(KITS))


def sampled(turns: list[Turn]) -> Counter[tuple[int, float]]:
    return Counter(
        pair for t in turns for pair in zip(t.output_ids, t.output_logprobs, strict=True)
    )


def trained(sequences: list[Stitched]) -> Counter[tuple[int, float]]:
    return Counter(
        (token, logprob)
        for s in sequences
        for token, mask, logprob in zip(
            s.tokens[s.response_start :], s.loss_mask, s.logprobs, strict=True
        )
        if mask
    )


def without_logprobs(turns: list[Turn]) -> list[Turn]:
    return [Turn(t.prompt_ids, t.output_ids) for t in turns]


def adopted_lie_in_the_mask(stitched: Stitched) -> None:
    start = stitched.response_start
    for divergence in stitched.divergences:
        if divergence.kind == "rewrite":
            continue
        span = slice(divergence.index, divergence.index + len(divergence.rendered_ids))
        assert stitched.tokens[span] == divergence.rendered_ids
        assert not any(stitched.loss_mask[span.start - start : span.stop - start])


@kits
@given(data=st.data())
def test_benign_edits_resync_and_lose_only_the_adopted_tokens(kit, data):
    codec, _ = KITS[kit]
    turns = data.draw(episodes(kit)).turns
    (stitched,) = stitch(turns, codec)
    assert stitched.tokens == turns[-1].prompt_ids + turns[-1].output_ids
    assert stitched.ended_by is None
    replaced = sum(len(d.emitted_ids) for d in stitched.divergences)
    assert stitched.ledger.resynced == replaced
    assert stitched.ledger.trained == sum(len(t.output_ids) for t in turns) - replaced
    assert trained([stitched]) <= sampled(turns)
    adopted_lie_in_the_mask(stitched)
    for divergence in stitched.divergences:  # as short as they can be
        assert divergence.emitted_ids[:1] != divergence.rendered_ids[:1]
        assert divergence.emitted_ids[-1:] != divergence.rendered_ids[-1:]
    (bare,) = stitch(without_logprobs(turns), codec, missing_logprobs="mask")
    assert (bare.tokens, bare.segments) == (stitched.tokens, stitched.segments)
    assert bare.ledger.masked == stitched.ledger.trained
    assert all(map(math.isnan, bare.logprobs))


@kits
@given(data=st.data())
def test_malign_edits_never_enter_the_sequence(kit, data):
    codec, _ = KITS[kit]
    episode = data.draw(episodes(kit, malign=True))
    (stitched,) = stitch(episode.turns, codec)
    last = episode.turns[episode.malign]
    assert stitched.tokens == last.prompt_ids + last.output_ids
    assert stitched.ended_by == "rewrite"
    rewrite = stitched.divergences[-1]
    assert (rewrite.kind, rewrite.turn) == ("rewrite", episode.malign)
    lost = sum(len(t.output_ids) for t in episode.turns[episode.malign + 1 :])
    assert stitched.ledger.dropped == {"after a rewrite": lost}
    assert stitched.ledger.sampled == sum(len(t.output_ids) for t in episode.turns)
    adopted_lie_in_the_mask(stitched)


@kits
@given(data=st.data())
def test_the_parts_of_a_split_cover_exactly_the_sampled_tokens(kit, data):
    codec, _ = KITS[kit]
    episode = data.draw(episodes(kit, malign=True))
    parts = stitch(episode.turns, codec, after_rewrite="split")
    ledger = total(part.ledger for part in parts)
    everything = sampled(episode.turns)
    assert ledger.sampled == everything.total() == ledger.trained + ledger.resynced
    assert trained(parts) <= everything
    assert trained(parts).total() == ledger.trained
    assert [part.first_turn for part in parts] == [
        0,
        *(part.last_turn + 1 for part in parts[:-1]),
    ]
    assert parts[-1].last_turn == len(episode.turns) - 1
