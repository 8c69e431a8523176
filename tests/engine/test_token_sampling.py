"""Draws follow the distribution, and nothing but the seed, the step and the row."""

import numpy as np
import pytest
import torch

from cua_lab.engine.token_sampling import Sampler, SamplingParams, uniforms
from cua_lab.errors import LabError

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, 3.0]])
FREE = torch.zeros(5)


def draws(params: SamplingParams, forbidden: torch.Tensor = FREE, count: int = 20000) -> np.ndarray:
    """How often each id comes out."""
    sampler = Sampler([params] * count, forbidden)
    logprobs = sampler.logprobs(LOGITS.expand(count, -1))
    ids = sampler.draw(logprobs, uniforms(0, 0, count))
    return np.bincount(ids.numpy(), minlength=5) / count


def test_frequencies_are_the_probabilities_at_the_temperature() -> None:
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(LOGITS[0] / temperature, -1).numpy()
        found = draws(SamplingParams(temperature=temperature))
        assert np.abs(found - expected).max() < 0.015


def test_temperature_zero_is_greedy_with_the_raw_log_probability() -> None:
    """sglang reports log_softmax of the unscaled logits at T = 0."""
    sampler = Sampler([SamplingParams(temperature=0.0)], FREE)
    logprobs = sampler.logprobs(LOGITS)
    assert sampler.draw(logprobs, np.zeros(1)).tolist() == [4]
    assert torch.equal(logprobs, torch.log_softmax(LOGITS, -1))


def test_top_p_and_top_k_narrow_the_draw_and_not_the_report() -> None:
    probabilities = torch.softmax(LOGITS[0], -1)
    nucleus = draws(SamplingParams(top_p=0.8))
    assert nucleus[[1, 2, 3]].sum() == 0
    assert nucleus[4] == pytest.approx(
        float(probabilities[4] / (probabilities[4] + probabilities[0])), abs=0.015
    )
    assert draws(SamplingParams(top_k=1))[4] == 1
    assert (draws(SamplingParams(top_k=3)) > 0).sum() == 3
    narrow = Sampler([SamplingParams(top_p=0.1, top_k=2)], FREE).logprobs(LOGITS)
    assert torch.equal(narrow, torch.log_softmax(LOGITS, -1))


def test_a_forbidden_id_has_no_probability_at_any_temperature() -> None:
    forbidden = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    assert draws(SamplingParams(temperature=100.0), forbidden)[4] == 0
    assert draws(SamplingParams(temperature=0.0), forbidden)[0] == 1
    # The largest uniform must not fall off the end, nor onto the forbidden last id.
    sampler = Sampler([SamplingParams()], forbidden)
    last = sampler.draw(sampler.logprobs(LOGITS), np.array([np.nextafter(1.0, 0.0)]))
    assert last.tolist() == [3]


def test_a_bias_moves_the_logit_before_the_temperature_and_the_report_counts_it() -> None:
    """As OpenAI, sglang and vLLM do; -100 is how they are told what a policy must never say."""
    biased = SamplingParams(temperature=2.0, logit_bias=((4, -100.0), (0, 1.5)))
    sampler = Sampler([SamplingParams(), biased], FREE)
    offset = torch.tensor([1.5, 0.0, 0.0, 0.0, -100.0])
    logprobs = sampler.logprobs(LOGITS.expand(2, -1))
    assert torch.equal(logprobs[0], torch.log_softmax(LOGITS[0], -1))
    assert torch.allclose(logprobs[1], torch.log_softmax((LOGITS[0] + offset) / 2, -1))
    assert draws(biased)[4] == 0
    sampler.keep(torch.tensor([1]))
    assert torch.equal(sampler.logprobs(LOGITS), logprobs[1:])


def test_a_row_draws_the_same_whoever_stands_beside_it() -> None:
    alone = Sampler([SamplingParams()], FREE)
    company = [SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_p=0.5)]
    batch = Sampler(company, FREE)
    for u in uniforms(7, 0, 50):
        single = alone.draw(alone.logprobs(LOGITS), np.array([u]))
        rows = batch.draw(batch.logprobs(LOGITS.expand(3, -1)), np.array([0.3, u, 0.9]))
        assert rows[1] == single[0]


def test_choices_and_seeds_have_streams_of_their_own() -> None:
    assert np.array_equal(uniforms(1, 0, 5), uniforms(1, 0, 9)[:5])
    assert not np.array_equal(uniforms(1, 0, 5), uniforms(1, 1, 5))
    assert not np.array_equal(uniforms(1, 0, 5), uniforms(2, 0, 5))
    assert len(uniforms(-1, 0, 3)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a non-negative finite number, got -1.0."),
        ({"temperature": float("inf")}, "finite"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": -1}, "max_new_tokens"),
    ],
)
def test_impossible_parameters_are_refused_by_name(options: dict, message: str) -> None:
    with pytest.raises(LabError, match=message):
        SamplingParams(**options)


@pytest.mark.parametrize("temperature", [1e-40, 1e-7, 5e-324])
def test_a_temperature_too_small_to_divide_by_is_greedy_with_the_raw_report(temperature) -> None:
    sampler = Sampler([SamplingParams(temperature=temperature)], FREE)
    logprobs = sampler.logprobs(LOGITS)
    assert torch.equal(logprobs, torch.log_softmax(LOGITS, -1))
    assert sampler.draw(logprobs, np.zeros(1)).tolist() == [4]


def test_small_and_large_temperatures_have_finite_reports() -> None:
    for temperature in (1e-5, 1e30, 1e300):
        logprobs = Sampler([SamplingParams(temperature=temperature)], FREE).logprobs(LOGITS)
        assert not logprobs.isnan().any()
