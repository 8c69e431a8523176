"""Each mistake changes what it is about and nothing else; the ratio finds those that it can."""

import math

import numpy as np
import pytest

from cua_lab.lessons import mistakes
from cua_lab.policy.policy import Policy
from cua_lab.policy.scoring import Example
from cua_lab.policy.template import encode
from cua_lab.stitching.codec import codec_from_tokenizer
from cua_lab.training.gradient_report import LossInput, as_sampled

TEXT = "<|im_start|>user\nup<|im_end|>\n<|im_start|>assistant\n"
SAID = ("up<|im_end|>", "down<|im_end|>")
NO_PIXELS, NO_GRIDS = np.zeros((0, 1536), np.float32), np.zeros((0, 3), np.int64)
SCAFFOLD = "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def rows(warm: Policy) -> list[LossInput]:
    """Two episodes of two turns without images, as an engine that holds the policy sampled them."""

    def row(advantage: float) -> LossInput:
        parts = [(TEXT, 0), (SAID[0], 1), (SCAFFOLD, 0), (SAID[1], 1)]
        ids: list[int] = []
        mask: list[int] = []
        for text, sampled in parts:
            new = encode(warm.tokenizer, text)
            ids += new
            mask += [sampled] * len(new)
        return LossInput(Example(ids, NO_PIXELS, NO_GRIDS), mask, [math.nan] * len(ids), advantage)

    return as_sampled(warm, [row(1.0), row(-0.5)])


def test_what_is_right_has_ratio_one_and_its_own_direction(
    warm: Policy, rows: list[LossInput]
) -> None:
    found = mistakes.damage(warm, rows, rows)
    assert (found.low, found.high) == (1.0, 1.0)
    assert found.cosine == pytest.approx(1.0)
    assert found.tokens == found.true_tokens


def test_a_lost_newline_is_found_by_the_ratio(warm: Policy, rows: list[LossInput]) -> None:
    wrong = mistakes.without_newlines(warm, rows)
    assert len(rows[0].example.ids) - len(wrong[0].example.ids) == 2, "behind each end token"
    found = mistakes.damage(warm, wrong, rows)
    assert found.low < 0.999 or found.high > 1.001


def test_zeros_make_the_ratio_the_probability_itself(warm: Policy, rows: list[LossInput]) -> None:
    found = mistakes.damage(warm, mistakes.zero_logprobs(rows), rows)
    assert 0 < found.low < found.high <= 1


def test_the_stop_token_alone_is_left_out(warm: Policy, rows: list[LossInput]) -> None:
    wrong = mistakes.without_stop(warm, rows)
    assert sum(rows[0].mask) - sum(wrong[0].mask) == len(SAID)
    assert wrong[0].example is rows[0].example


def test_by_role_counts_what_the_assistant_was_made_to_say(
    warm: Policy, rows: list[LossInput]
) -> None:
    """However many messages there are: an episode may have ended at a rewrite."""
    later = [LossInput(r.example, _second_only(r.mask), r.logprobs, r.advantage) for r in rows]
    wrong = mistakes.by_role(warm, later)
    assert sum(wrong[0].mask) == sum(rows[0].mask) > sum(later[0].mask)


def test_spelled_words_are_other_ids_of_the_same_text(warm: Policy, rows: list[LossInput]) -> None:
    codec = codec_from_tokenizer(warm.tokenizer)
    (one, _) = mistakes.spelled_out(warm, rows, codec, frozenset({b"up", b"down"}))
    decode = warm.tokenizer.decode
    assert decode(one.example.ids) == decode(rows[0].example.ids)
    assert sum(one.mask) >= sum(rows[0].mask)


def test_equal_rewards_give_a_sentence_and_no_nan(warm: Policy, rows: list[LossInput]) -> None:
    level = [LossInput(r.example, r.mask, r.logprobs, 0.0) for r in rows]
    assert "all advantages are 0" in str(mistakes.damage(warm, level, level))


def _second_only(mask: object) -> list[int]:
    entries = list(mask)  # type: ignore[call-overload]
    end = entries.index(0, entries.index(1))
    return [0] * end + entries[end:]
