"""Samples: a reward and pixels for each sequence, and write-offs that count for nothing."""

import math

import numpy as np
import pytest

from cua_lab.policy.vision import QWEN2_5_VL
from cua_lab.stitching.episode_images import episode_images
from cua_lab.stitching.sample import failed_sample, samples_of
from cua_lab.stitching.stitch import stitch
from tests.stitching.codecs import encode, qwen, turn
from tests.stitching.test_episode_images import OUTPUT, Processor, episode, png


def write_off(**changes):
    options = {
        "group": "g",
        "episode": "e",
        "reason": "the screen died",
        "codec": qwen(),
        "patchifier": Processor(QWEN2_5_VL),
    }
    return failed_sample(**(options | changes))


def test_a_failed_episode_has_one_image_no_response_and_no_reward():
    """verl#6375, NeMo-RL#2207: not a reward of 0. miles#2406: every rank runs the vision tower."""
    sample = write_off()
    assert sample.reward is None
    assert sample.stitched.loss_mask == ()
    assert sample.stitched.response_start == len(sample.stitched.tokens)
    assert len(sample.image_grid_thw) == 1
    assert len(sample.pixel_values) == 4 * (len(sample.stitched.tokens) - 2)
    assert sample.reason == "the screen died"
    assert not sample.counts


def test_the_parts_of_a_split_share_the_reward_and_count_once():
    images = episode_images([png(64, 64), png(64, 64, "blue")], Processor(QWEN2_5_VL))
    turns = episode(4, 4)
    changed = turn((*encode("<|im_start|>user\nNo."), *turns[1].prompt_ids[3:]), OUTPUT)
    sequences = stitch([turns[0], changed], qwen(), after_rewrite="split")
    samples = samples_of(sequences, images, reward=0.5, group="g", episode="e")
    assert [(s.part, s.parts, s.reward, s.group, s.episode) for s in samples] == [
        (0, 2, 0.5, "g", "e"),
        (1, 2, 0.5, "g", "e"),
    ]
    assert [s.counts for s in samples] == [True, False]


def made(**changes):
    images = episode_images([png(64, 64)], Processor(QWEN2_5_VL))
    options = {"reward": 1.0, "group": "g", "episode": "e"}
    return samples_of(stitch(episode(4), qwen()), images, **(options | changes))[0]


@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_refused_by_name(reward):
    """trl#5775."""
    with pytest.raises(ValueError, match="episode e"):
        made(reward=reward)


def test_a_truncated_episode_keeps_its_reward():
    assert made(status="truncated").counts


def test_a_sample_whose_pixels_are_not_its_images_is_refused():
    from dataclasses import replace

    sample = made()
    with pytest.raises(ValueError, match="1 images"):
        replace(sample, pixel_values=sample.pixel_values[:-1])
    with pytest.raises(ValueError, match="1 images"):
        replace(sample, image_grid_thw=np.zeros((0, 3), np.int64))


def test_a_failure_with_tokens_to_train_on_is_refused():
    with pytest.raises(ValueError, match="tokens to train on"):
        made(reward=None, status="failed")
