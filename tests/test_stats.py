"""Estimates and rates: missing is not zero, and the interval is the published one."""

import math

import pytest

from cua_lab.stats import estimate, wilson


def test_an_estimate_counts_only_what_was_measured() -> None:
    result = estimate([1.0, None, 0.0, 1.0, 0.0])
    assert result is not None
    assert (result.mean, result.n) == (0.5, 4)
    assert result.se == pytest.approx(math.sqrt(1 / 3) / 2)


def test_an_estimate_of_nothing_is_missing() -> None:
    assert estimate([None, None]) is None


def test_wilson_agrees_with_published_values() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    expected = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605)}
    expected |= {(0, 20): (0.0, 0.1611), (1, 29): (0.0061, 0.1718)}
    for (hits, count), (low, high) in expected.items():
        rate = wilson(hits, count)
        assert rate.low == pytest.approx(low, abs=1e-4)
        assert rate.high == pytest.approx(high, abs=1e-4)


def test_no_samples_is_no_rate_rather_than_zero() -> None:
    assert wilson(0, 0).rate is None
    with pytest.raises(ValueError):
        wilson(3, 2)
