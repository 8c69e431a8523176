"""Our samples in Miles' fields, those that a real episode seldom makes included."""

import math
from typing import Any

import numpy as np
import pytest

from cua_lab.miles.convert import to_miles
from cua_lab.stitching.ledger import TokenLedger
from cua_lab.stitching.sample import Sample
from cua_lab.stitching.stitched import Segment, Stitched
from tests.miles.standin import sample_classes

PAD = 9
TOKENS = (0, PAD, PAD, PAD, PAD, 1, 5, 6, 2)


def part(number: int, parts: int, **changes: Any) -> Sample:
    """One image, one sampled token, one scaffold token, one sampled token."""
    stitched = Stitched(
        tokens=TOKENS,
        loss_mask=(1, 0, 1),
        logprobs=(-0.5, math.nan, -0.25),
        response_start=6,
        segments=(
            Segment("prompt", 0, 1, 0),
            Segment("image", 1, 5, 0),
            Segment("prompt", 5, 6, 0),
            Segment("policy", 6, 7, 0, "4"),
            Segment("scaffold", 7, 8, 1),
            Segment("policy", 8, 9, 1, changes.pop("version", "5")),
        ),
        ledger=TokenLedger(sampled=2, trained=2),
        last_turn=1,
    )
    pixels = np.full((16, 6), number, np.float32)
    pixels.setflags(write=False)  # as the cache of the image processor hands them out
    values: dict[str, Any] = {"reward": 0.5, "status": "completed", "group": "g", "episode": "e"}
    grid = np.array([[1, 4, 4]])
    return Sample(stitched, pixels, grid, part=number, parts=parts, **values | changes)


@pytest.fixture(params=sample_classes())
def target(request: pytest.FixtureRequest) -> Any:
    return request.param(group_index=1, index=2, metadata={"hud_task": {"id": "x"}})


def test_positions_without_a_log_probability_get_zero_and_no_loss(target: Any) -> None:
    """Ours are NaN there, and NaN x 0 is NaN in Miles' off-policy metrics."""
    (made,) = to_miles(target, [part(0, 1)], repr)
    assert made.loss_mask == [1, 0, 1]
    assert made.rollout_log_probs == [-0.5, 0.0, -0.25]
    assert (made.tokens, made.response_length) == (list(TOKENS), 3)
    assert made.response == "(5, 6, 2)"


def test_a_broken_episode_becomes_several_samples_that_share_nothing(target: Any) -> None:
    made = to_miles(target, [part(n, 3) for n in range(3)], repr)
    assert made[0] is target
    assert [m.metadata["cua_lab"]["part"] for m in made] == [0, 1, 2]
    assert {(m.group_index, m.index, m.reward) for m in made} == {(1, 2, 0.5)}
    assert [float(m.multimodal_train_inputs["pixel_values"].mean()) for m in made] == [0, 1, 2]
    made[1].loss_mask[0] = 0
    made[1].multimodal_train_inputs["pixel_values"][0] = 7.0
    assert made[0].loss_mask == [1, 0, 1]


def test_an_episode_that_an_unusable_answer_ended_is_truncated_and_counts(target: Any) -> None:
    (made,) = to_miles(target, [part(0, 1, status="truncated")], repr)
    assert made.status is type(target).Status.TRUNCATED
    assert not made.remove_sample
    assert made.metadata["cua_lab"]["graded"]


def test_miles_reads_the_turns_of_a_sample(target: Any) -> None:
    """Its `multi_turn_metric/round_number_*` is there only where the first sample says a number."""
    (made,) = to_miles(target, [part(0, 1)], repr)
    assert made.metadata["round_number"] == made.metadata["cua_lab"]["turns"] == 2
    assert made.metadata["hud_task"] == {"id": "x"}, "what Miles put there stays"


def test_weight_versions_are_kept_where_they_are_numbers(target: Any) -> None:
    """Miles takes the least of them as an int to tell how stale a sample is."""
    (made,) = to_miles(target, [part(0, 1)], repr)
    assert made.weight_versions == ["4", "5"]
    (made,) = to_miles(target, [part(0, 1, version="default")], repr)
    assert made.weight_versions == ["4"]
