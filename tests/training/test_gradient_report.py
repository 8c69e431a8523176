"""Looking at a gradient: it is the trainer's, token by token, and nothing is changed by looking."""

import math
from dataclasses import replace

import pytest
import torch

from cua_lab.training.advantages import group_advantages
from cua_lab.training.gradient_report import GradientReport, LossInput, as_sampled, look, row_of
from tests.training.toys import batch, tiny_policy

POLICY = tiny_policy()


def rows() -> list[LossInput]:
    samples = batch(POLICY, lambda ids: float(ids[0] % 5), groups=1, size=4, tokens=3)
    values = group_advantages([s.reward for s in samples], [s.group for s in samples]).values
    return [row_of(sample, value) for sample, value in zip(samples, values, strict=True)]


@pytest.fixture(scope="module")
def seen() -> GradientReport:
    return look(POLICY, rows())


def test_on_policy_every_ratio_is_one_and_every_push_is_the_advantage_over_n(
    seen: GradientReport,
) -> None:
    """At the first update the gradient is the plain policy gradient (trl#4159)."""
    for row, ratios, pushes in zip(rows(), seen.ratios, seen.pushes, strict=True):
        assert ratios == pytest.approx(1, abs=1e-5)
        assert pushes == pytest.approx(row.advantage / seen.tokens, abs=1e-6)


def test_looking_leaves_weights_and_gradients_alone(seen: GradientReport) -> None:
    before = [p.clone() for p in POLICY.model.parameters()]
    look(POLICY, rows())
    assert all(torch.equal(a, b) for a, b in zip(before, POLICY.model.parameters(), strict=True))
    assert all(p.grad is None for p in POLICY.model.parameters())


def test_a_gradient_has_the_direction_and_length_of_itself(seen: GradientReport) -> None:
    assert seen.cosine(seen) == pytest.approx(1)
    assert seen.length(seen) == pytest.approx(1)


def test_a_zero_for_a_missing_logprob_pushes_by_its_probability_or_not_at_all(
    seen: GradientReport,
) -> None:
    """Old = 0 makes the ratio p: what is bad is cut off by the clip, what is rare hardly moves."""
    wrong = look(POLICY, [replace(row, logprobs=[0.0] * len(row.mask)) for row in rows()])
    for row, ratios, pushes in zip(rows(), wrong.ratios, wrong.pushes, strict=True):
        assert (ratios < 0.8).all()
        kept = ratios if row.advantage > 0 else 0 * ratios
        assert pushes == pytest.approx(kept * row.advantage / wrong.tokens, abs=1e-6)


def test_as_sampled_gives_back_what_the_rollout_recorded() -> None:
    for row, again in zip(rows(), as_sampled(POLICY, rows()), strict=True):
        for kept, before, after in zip(row.mask, row.logprobs, again.logprobs, strict=True):
            assert after == pytest.approx(before, abs=1e-5) if kept else math.isnan(after)


def test_a_mask_of_another_length_is_refused_with_both_numbers() -> None:
    row = rows()[0]
    with pytest.raises(ValueError, match=f"mask has 3 entries .* {len(row.mask)} tokens"):
        replace(row, mask=[1, 1, 1])
