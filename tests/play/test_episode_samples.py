"""A fault of one answer costs its episode, never the run."""

import math
from dataclasses import replace

import pytest

from cua_lab.play.episode import Episode
from cua_lab.play.episode_samples import as_failed, episode_samples
from cua_lab.policy.vision import QWEN2_5_VL
from cua_lab.stitching.turn import Turn
from tests.stitching.codecs import qwen
from tests.stitching.test_episode_images import Processor, episode, png

PLAYED = Episode(
    id="e",
    group="g",
    task="t",
    turns=tuple(episode(4, 4)),
    actions=(),
    screenshots=(png(64, 64), png(64, 64, "blue")),
    reward=0.5,
    status="completed",
)


def converted(episode: Episode, **options):
    return episode_samples(episode, qwen(), Processor(QWEN2_5_VL), **options)


def test_an_episode_becomes_one_sample_with_its_images_and_its_reward():
    (sample,) = converted(PLAYED)
    assert (sample.status, sample.reward, sample.screenshots) == ("completed", 0.5, (0, 1))


def with_logprobs(logprobs: tuple[float, ...] | None) -> Episode:
    first, second = PLAYED.turns
    return replace(PLAYED, turns=(first, Turn(second.prompt_ids, second.output_ids, logprobs)))


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_one_answer_with_a_bad_logprob_is_one_failed_episode(bad: float):
    count = len(PLAYED.turns[1].output_ids)
    (sample,) = converted(with_logprobs((bad, *[-1.0] * (count - 1))))
    assert (sample.status, sample.reward) == ("failed", None)
    assert f"turn 1 has {count} output ids but only {count - 1} finite" in sample.reason
    (sample,) = converted(with_logprobs(None))
    assert "only 0 finite" in sample.reason


@pytest.mark.parametrize(
    ("changes", "options", "reason"),
    [
        ({"screenshots": ()}, {}, "2 images but only 0 screenshots"),
        ({"screenshots": (png(512, 480),) * 2}, {}, "has 4 image tokens"),
        ({"turns": ()}, {}, "the policy was never asked"),
        ({}, {"max_tokens": 5}, "turn 0 has"),
        ({"turns": (Turn((1, 2), (3,), (-1.0,)),)}, {"images_only": True}, "shows a screenshot"),
        ({"reward": None, "status": "failed", "error": "dead screen"}, {}, "dead screen"),
    ],
)
def test_what_cannot_be_trained_is_written_off_with_its_reason(changes, options, reason):
    (sample,) = converted(replace(PLAYED, **changes), **options)
    assert sample.status == "failed"
    assert reason in sample.reason


def test_an_episode_that_was_written_off_is_on_record_as_failed():
    failed = as_failed(replace(PLAYED, success=True), "why")
    assert (failed.status, failed.reward, failed.success, failed.error) == (
        "failed",
        None,
        None,
        "why",
    )
