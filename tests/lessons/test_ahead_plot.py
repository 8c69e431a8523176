"""Importance weights: exact sums against answers that are drawn."""

import numpy as np
import pytest

from cua_lab.lessons.ahead_plot import ahead_figure, estimate

OLD, NEW, PAYS = (0.6, 0.2, 0.15, 0.05), (0.4, 0.2, 0.15, 0.25), (0.0, 0.2, 0.3, 1.0)


@pytest.mark.parametrize("cap", [None, 2.0, 5.0])
def test_the_sums_are_what_drawn_answers_come_to(cap: float | None) -> None:
    drawn = np.random.default_rng(0).choice(4, size=200_000, p=OLD)
    weights = np.ones(4) if cap is None else np.minimum(np.divide(NEW, OLD), cap)
    paid = (weights * np.array(PAYS))[drawn]
    assert estimate(OLD, NEW, PAYS, cap) == pytest.approx((paid.mean(), paid.std()), abs=0.01)


def test_full_weights_are_right_on_average_and_equal_policies_need_none() -> None:
    assert estimate(OLD, NEW, PAYS, 100.0)[0] == pytest.approx(np.dot(NEW, PAYS))
    assert estimate(NEW, NEW, PAYS, 2.0) == estimate(NEW, NEW, PAYS, None)


def test_the_figure_says_its_error_in_words() -> None:
    assert "without weights the error is 0.20" in str(ahead_figure(OLD, NEW, PAYS).alt)
