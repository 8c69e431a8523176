"""One constructor checks ids, mask and log-probabilities (trl#5144)."""

import math
from dataclasses import replace

import pytest

from cua_lab.stitching.ledger import TokenLedger, total
from cua_lab.stitching.stitch import stitch
from tests.stitching.codecs import PROMPT, encode, qwen, turn


@pytest.fixture
def stitched():
    return stitch([turn(encode(PROMPT), encode("Click it.<|im_end|>"))], qwen())[0]


def test_a_mask_of_another_length_is_refused_with_both_numbers(stitched):
    with pytest.raises(ValueError, match="loss_mask has 3 entries but the response has 4 tokens"):
        replace(stitched, loss_mask=stitched.loss_mask[:-1])


def test_segments_that_leave_a_gap_are_refused(stitched):
    with pytest.raises(ValueError, match="next must start at"):
        replace(stitched, segments=stitched.segments[1:])
    with pytest.raises(ValueError, match="segments end at"):
        replace(stitched, segments=stitched.segments[:-1])


def test_a_token_that_carries_loss_needs_a_finite_logprob(stitched):
    logprobs = (*stitched.logprobs[:-1], math.nan)
    with pytest.raises(ValueError, match="token 13 carries loss but its log-probability is nan"):
        replace(stitched, logprobs=logprobs)


def test_a_token_without_loss_carries_no_logprob(stitched):
    with pytest.raises(ValueError, match="carries no log-probability"):
        replace(
            stitched,
            loss_mask=(0, 1, 1, 1),
            ledger=TokenLedger(sampled=4, trained=3, masked=1),
        )


def test_the_mask_and_the_ledger_count_the_same(stitched):
    with pytest.raises(ValueError, match="4 tokens in but 3 were counted"):
        replace(stitched, ledger=TokenLedger(sampled=3, trained=3))


def test_a_ledger_that_loses_a_token_is_refused():
    with pytest.raises(ValueError, match="5 tokens were sampled but 4 are accounted for"):
        TokenLedger(sampled=5, trained=2, resynced=1, dropped={"after a rewrite": 1})


def test_ledgers_add_up():
    a = TokenLedger(sampled=5, trained=3, dropped={"after a rewrite": 2})
    b = TokenLedger(sampled=4, trained=2, masked=1, dropped={"after a rewrite": 1})
    assert total([a, b]).as_dict() == {
        "sampled": 9,
        "trained": 5,
        "masked": 1,
        "resynced": 0,
        "dropped": {"after a rewrite": 3},
    }
