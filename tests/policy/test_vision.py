"""Sizes, token counts and patches of screenshots."""

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from cua_lab.errors import LabError
from cua_lab.policy.vision import (
    QWEN2_5_VL,
    QWEN3_VL,
    SMALL,
    Geometry,
    Vision,
    build_processor,
    smart_resize,
    tokens_for,
    tokens_of,
)


@pytest.mark.parametrize(
    ("width", "height", "qwen3", "qwen25"),
    [
        (512, 480, 240, 306),
        (640, 600, 380, 483),
        (1280, 1200, 1520, 1978),
        (1920, 1080, 2040, 2691),
        (64, 64, 64, 4),
    ],
)
def test_a_screenshot_costs_what_the_real_families_charge(width, height, qwen3, qwen25) -> None:
    """Qwen3-VL has a token per 32 px and a minimum area; Qwen2.5-VL one per 28 px."""
    assert tokens_for(width, height, QWEN3_VL) == qwen3
    assert tokens_for(width, height, QWEN2_5_VL) == qwen25


def test_qwen25_resizes_512x480_to_504x476() -> None:
    """Its clicks are in THESE pixels (Qwen3-VL#1485)."""
    assert smart_resize(512, 480, QWEN2_5_VL) == (504, 476)


def test_a_128_px_screen_costs_the_small_policy_16_tokens() -> None:
    assert smart_resize(128, 128, SMALL) == (128, 128)
    assert tokens_for(128, 128, SMALL) == 16


@pytest.mark.parametrize("geometry", [QWEN3_VL, QWEN2_5_VL, SMALL])
@pytest.mark.parametrize("size", [(33, 40), (64, 64), (200, 96), (500, 333)])
def test_the_arithmetic_agrees_with_the_processor(geometry: Geometry, size) -> None:
    vision = Vision(build_processor(geometry))
    _, grid = vision.patchify(Image.new("RGB", size))
    assert tokens_of(grid) == [tokens_for(*size, geometry)]


@pytest.mark.parametrize("size", [(128, 128), (64, 96), (160, 128)])
@pytest.mark.parametrize(("mean", "std"), [(0.91, 0.27), (0.481, 0.269)])
def test_the_fast_path_equals_the_processor_to_the_last_bit(size, mean, std) -> None:
    values = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(values)
    vision = Vision(build_processor(mean=mean, std=std))
    fast, slow = vision.patchify(image), vision.reference(image)
    assert np.array_equal(fast[0], slow[0])
    assert np.array_equal(fast[1], slow[1])
    assert fast[0].dtype == np.float32


def test_a_png_gives_the_patches_of_the_image_it_holds(noise: Image.Image) -> None:
    """Demonstrations are drawn without a screen; rollouts come as PNG: the pixels must agree."""
    file = io.BytesIO()
    noise.save(file, "PNG", compress_level=1)
    vision = Vision(build_processor())
    assert np.array_equal(vision.patchify(file.getvalue())[0], vision.patchify(noise)[0])


def test_patches_are_cached_by_content_and_cannot_be_written(noise: Image.Image) -> None:
    vision = Vision(build_processor(), cache_bytes=500_000)  # one of 128 px has 393,240
    first = vision.patchify(noise)
    assert vision.patchify(noise.copy())[0] is first[0]
    with pytest.raises(ValueError, match="read-only"):
        first[0][0, 0] = 1.0
    vision.patchify(Image.new("RGB", (128, 128)))
    assert vision.patchify(noise)[0] is not first[0]


def test_pictures_of_one_palette_index_but_other_colours_are_told_apart() -> None:
    """Both have the same raw bytes; the cache gave the first one's patches for the second."""
    red, blue = (Image.new("RGB", (64, 64), colour).quantize(2) for colour in ("red", "blue"))
    assert red.tobytes() == blue.tobytes()
    vision = Vision(build_processor(SMALL))
    assert not np.array_equal(vision.patchify(red)[0], vision.patchify(blue)[0])


def test_what_is_no_image_is_named() -> None:
    with pytest.raises(LabError, match=r"cannot read an image of 11 bytes.*send a PNG"):
        Vision(build_processor()).patchify(b"not a image")


def test_min_and_max_pixels_are_not_passed_any_more() -> None:
    """transformers moved them to `size=`; the old names only warn, and are then dropped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        size = build_processor(QWEN3_VL).size
    assert (size["shortest_edge"], size["longest_edge"]) == (65536, 16777216)


@pytest.mark.parametrize("sizes", [[], [(128, 128)], [(128, 96), (64, 64)], [(128, 128), (50, 41)]])
def test_many_images_at_once_are_the_same_patches_one_behind_the_other(sizes) -> None:
    vision = Vision(build_processor(SMALL))
    noise = np.random.default_rng(0)
    images = [
        Image.fromarray(noise.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]
    pixels, grids = vision.patchify_all(images)
    parts = [vision.patchify(image) for image in images]
    assert np.array_equal(
        pixels, np.concatenate([np.zeros((0, pixels.shape[1])), *(p for p, _ in parts)])
    )
    assert np.array_equal(grids, np.concatenate([np.zeros((0, 3), int), *(g for _, g in parts)]))
    assert (pixels.dtype, grids.dtype) == (np.float32, np.int64)
