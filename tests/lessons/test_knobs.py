"""Knobs without a browser: their pictures are the package's numbers, and say what they show."""

import re

import numpy as np
import pytest

from cua_lab.errors import LabError
from cua_lab.lessons import knobs
from cua_lab.lessons.knobs import FIRST, knob


@pytest.mark.parametrize("kind", FIRST)
def test_the_stored_copy_is_a_picture_with_words(kind: str) -> None:
    data, metadata = knob(kind)._repr_mimebundle_()
    assert data["text/plain"] == f"Knob({kind!r})"
    assert len(data["image/png"]) > 5000
    assert re.search(r"\d", metadata["image/png"]["alt"])


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(LabError, match="no knob 'clamp'"):
        knob("clamp")
    with pytest.raises(LabError, match="got rate"):
        knob("clip", rate=1)


def test_silent_groups_by_hand() -> None:
    assert knobs.silent_share(0.5, 2) == 0.5
    assert knobs.silent_share(0.0, 8) == 1.0


def test_a_policy_under_a_kl_weight_maximises_reward_less_penalty() -> None:
    """By search: no other probability does better."""
    p, weight = 0.2, 0.7
    q = np.linspace(1e-4, 1 - 1e-4, 20001)
    worth = q - weight * (q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)))
    assert abs(q[worth.argmax()] - knobs.drifted(p, weight)) < 1e-3
