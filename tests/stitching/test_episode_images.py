"""Screenshots and image tokens: exact counts, or an error that says which image."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cua_lab.policy.vision import QWEN2_5_VL, QWEN3_VL, Geometry, Vision, smart_resize, tokens_for
from cua_lab.stitching.episode_images import ImageMismatch, episode_images
from cua_lab.stitching.stitch import stitch
from cua_lab.stitching.turn import image_key
from tests.stitching.codecs import PAD, SEE, SEEN, encode, qwen, turn

OUTPUT = encode("Click it.<|im_end|>")


class Processor:
    """Patches of the right shape for a family, counting its calls."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.calls = 0

    def patchify(self, source: bytes):
        self.calls += 1
        width, height = smart_resize(*Image.open(io.BytesIO(source)).size, self.geometry)
        rows, columns = height // self.geometry.patch, width // self.geometry.patch
        pixels = np.full((rows * columns, 6 * self.geometry.patch**2), self.calls, np.float32)
        return pixels, np.array([[1, rows, columns]], np.int64)


def png(width: int, height: int, colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


def episode(*counts: int):
    """One turn for each image."""
    turns, prompt = [], encode("<|im_start|>user\nGo.")
    for count in counts:
        prompt = (*prompt, SEE, *[PAD] * count, SEEN)
        turns.append(turn(prompt, OUTPUT))
        prompt = (*prompt, *OUTPUT)
    return turns


@pytest.mark.parametrize(
    ("size", "qwen3", "qwen2_5"),
    [
        ((512, 480), 240, 306),
        ((640, 600), 380, 483),
        ((1280, 1200), 1520, 1978),
        ((1920, 1080), 2040, 2691),
        ((64, 64), 64, 4),
    ],
)
@pytest.mark.parametrize("family", ["qwen3", "qwen2_5"])
def test_the_published_token_counts_match_and_any_other_count_is_an_error(
    family, size, qwen3, qwen2_5
):
    geometry, count = (QWEN3_VL, qwen3) if family == "qwen3" else (QWEN2_5_VL, qwen2_5)
    assert tokens_for(*size, geometry) == count
    images = episode_images([png(*size)], Processor(geometry))
    (stitched,) = stitch(episode(count), qwen())
    pixels, grid = images.for_sequence(stitched)
    assert len(pixels) == count * 4
    assert grid.shape == (1, 3)
    (other,) = stitch(episode(count + 1), qwen())
    with pytest.raises(ImageMismatch, match=f"image 0 .* has {count + 1} image tokens"):
        images.for_sequence(other)


def test_the_error_names_the_image_both_counts_and_both_sizes():
    """prime-rl#2013, trl#5904."""
    images = episode_images([png(64, 64), png(512, 480)], Processor(QWEN2_5_VL))
    (stitched,) = stitch(episode(4, 300), qwen())
    with pytest.raises(ImageMismatch) as caught:
        images.for_sequence(stitched)
    for part in ("image 1", "turn 1", "300 image tokens", "512x480", "504x476", "306"):
        assert part in str(caught.value)


def test_an_image_that_the_template_dropped_is_found():
    """trl#5663: templates may drop images inside `tool` messages, and the rest moves up."""
    images = episode_images([png(64, 64), png(512, 480)], Processor(QWEN2_5_VL))
    (stitched,) = stitch(episode(306), qwen())
    with pytest.raises(ImageMismatch, match="image 0"):
        images.for_sequence(stitched)


def test_more_images_in_the_prompt_than_screenshots_is_an_error():
    images = episode_images([png(64, 64)], Processor(QWEN2_5_VL))
    (stitched,) = stitch(episode(4, 4), qwen())
    with pytest.raises(ImageMismatch, match="2 images but only 1 screenshots"):
        images.for_sequence(stitched)


def test_the_last_screenshot_that_no_prompt_shows_is_left_out():
    images = episode_images([png(64, 64), png(64, 64, "blue")], Processor(QWEN2_5_VL))
    (stitched,) = stitch(episode(4), qwen())
    pixels, grid = images.for_sequence(stitched)
    assert len(grid) == 1
    assert set(np.unique(pixels)) == {1.0}


def test_pixels_are_processed_once_for_each_content():
    processor = Processor(QWEN2_5_VL)
    images = episode_images([png(64, 64), png(64, 64, "blue"), png(64, 64)], processor)
    assert processor.calls == 2
    assert images.pixel_values[:, 0].reshape(3, -1)[:, 0].tolist() == [1.0, 2.0, 1.0]


def test_sequences_of_one_episode_share_their_pixels():
    images = episode_images([png(64, 64), png(64, 64, "blue")], Processor(QWEN2_5_VL))
    turns = episode(4, 4)
    changed = turn((*encode("<|im_start|>user\nNo."), *turns[1].prompt_ids[3:]), OUTPUT)
    sequences = stitch([turns[0], changed], qwen(), after_rewrite="split")
    first, second = (images.for_sequence(s)[0] for s in sequences)
    assert np.shares_memory(first, second)


def test_an_episode_is_cut_at_a_turn_and_never_within_an_image():
    turns = episode(4, 4, 4)
    limit = len(turns[1].prompt_ids) + len(OUTPUT)
    for room in (0, 3, 6):
        (stitched,) = stitch(turns, qwen(), max_tokens=limit + room)
        assert stitched.tokens == turns[1].prompt_ids + OUTPUT
        assert stitched.ended_by == "too_long"
        assert stitched.ledger.dropped == {"longer than max_tokens": len(OUTPUT)}
    with pytest.raises(ValueError, match="turn 0"):
        stitch(turns, qwen(), max_tokens=5)


def test_the_real_image_processor_agrees_with_the_server():
    """The recorded prompts hold a 160x96 screenshot as 15 tokens."""
    from cua_lab.policy.vision import build_processor
    from cua_lab.serving.dialects import read_choice
    from tests.recordings import SGLANG, recording

    small = Geometry(patch=16, min_pixels=32 * 32)
    images = episode_images([png(160, 96)], Vision(build_processor(small)))
    response = recording(SGLANG, "b_image_tools_hist__all_flags_top2")["response"]
    (stitched,) = stitch([read_choice(response).turn()], qwen())
    assert len(images.for_sequence(stitched)[0]) == 60


def shown(turns, screenshots, *which):
    """The turns as requests that showed these screenshots."""
    return [
        replace(turn, images=tuple(image_key(screenshots[n]) for n in numbers))
        for turn, numbers in zip(turns, which, strict=True)
    ]


def test_a_sequence_gets_the_images_of_its_own_request_and_not_the_first_ones():
    """An agent that keeps the last two screenshots shows [0], [0, 1], [1, 2]: by count the third
    prompt would be trained with the pixels of [0, 1]."""
    screenshots = [png(64, 64, colour) for colour in ("red", "blue", "green")]
    images = episode_images(screenshots, Processor(QWEN2_5_VL))
    one, two = episode(4), episode(4, 4)[1:]
    other = episode(4, 4)[1]
    last = replace(other, prompt_ids=(*encode("<|im_start|>user\nGone."), *other.prompt_ids[4:]))
    turns = shown([*one, *two, last], screenshots, [0], [0, 1], [1, 2])
    first, second = stitch(turns, qwen(), after_rewrite="split")
    assert images.which(first) == (0, 1)
    assert images.which(second) == (1, 2)
    pixels, _ = images.for_sequence(second)
    assert np.unique(pixels).tolist() == [2.0, 3.0], "the second and the third"
    assert np.shares_memory(pixels, images.pixel_values)


def test_screenshots_out_of_order_are_gathered():
    screenshots = [png(64, 64, colour) for colour in ("red", "blue", "green")]
    images = episode_images(screenshots, Processor(QWEN2_5_VL))
    (turn_,) = shown(episode(4, 4)[1:], screenshots, [2, 0])
    pixels, grid = images.for_sequence(stitch([turn_], qwen())[0])
    assert pixels[:, 0].reshape(2, -1)[:, 0].tolist() == [3.0, 1.0]
    assert len(grid) == 2


def test_two_equal_screenshots_are_one_image():
    screenshots = [png(64, 64), png(64, 64, "blue"), png(64, 64)]
    images = episode_images(screenshots, Processor(QWEN2_5_VL))
    (turn_,) = shown(episode(4, 4, 4)[2:], screenshots, [0, 1, 2])
    assert images.which(stitch([turn_], qwen())[0]) == (0, 1, 2)


def test_an_image_that_was_never_recorded_or_never_reached_the_prompt_is_an_error():
    screenshots = [png(64, 64), png(64, 64, "blue")]
    images = episode_images(screenshots[:1], Processor(QWEN2_5_VL))
    (lost,) = shown(episode(4), screenshots, [1])
    with pytest.raises(ImageMismatch, match="image 0 of the request is none of the 1 recorded"):
        images.for_sequence(stitch([lost], qwen())[0])
    (dropped,) = shown(episode(4), screenshots, [0, 1])
    with pytest.raises(ImageMismatch, match="1 images but the request showed 2"):
        images.for_sequence(stitch([dropped], qwen())[0])
