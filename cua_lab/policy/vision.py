"""Screens as the policy sees them: sizes and token counts as plain arithmetic, pixels as patches.

An image becomes `pixel_values` float32 (n_patches, patch_dim) and `grid_thw` int64 (1, 3); it costs
`t * h * w / merge**2` tokens. Invariant: `Vision.patchify` equals the family's own image processor
bit for bit, also on the fast path for images that need no resizing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from cua_lab.errors import LabError
from cua_lab.pictures import to_rgb
from cua_lab.policy.byte_cache import ByteCache

Patches = tuple[np.ndarray, np.ndarray]
"""pixel_values float32 (n_patches, patch_dim), grid_thw int64 (1, 3)."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a family cuts an image into tokens."""

    patch: int
    """Side of a patch, px."""
    merge: int = 2
    """Patches per token along each side."""
    min_pixels: int = 56 * 56
    """Images of a smaller area are enlarged to it."""
    max_pixels: int = 28 * 28 * 1280
    """Images of a larger area are shrunk to it."""

    @property
    def factor(self) -> int:
        """Side of a token, px: both sides of a resized image are multiples of it."""
        return self.patch * self.merge


QWEN3_VL = Geometry(patch=16, min_pixels=256 * 256, max_pixels=4096 * 4096)
QWEN2_5_VL = Geometry(patch=14, min_pixels=56 * 56, max_pixels=14 * 14 * 4 * 16384)
SMALL = Geometry(patch=16, min_pixels=32 * 32, max_pixels=1024 * 1024)
"""The small policy: Qwen3-VL's cut without its minimum area, so that 128 px screens stay 128 px."""


def smart_resize(width: int, height: int, geometry: Geometry) -> tuple[int, int]:
    """The (width, height) an image is resized to: multiples of the factor, area within bounds."""
    if width < 1 or height < 1:
        raise LabError(f"an image of {width}x{height} px has no area; send one of at least 1x1 px")
    if max(width, height) / min(width, height) > 200:
        raise LabError(f"an image of {width}x{height} px is too narrow: its sides differ over 200x")
    factor, area = geometry.factor, width * height
    new_w, new_h = round(width / factor) * factor, round(height / factor) * factor
    if new_w * new_h > geometry.max_pixels:
        beta = math.sqrt(area / geometry.max_pixels)
        new_w = max(factor, math.floor(width / beta / factor) * factor)
        new_h = max(factor, math.floor(height / beta / factor) * factor)
    elif new_w * new_h < geometry.min_pixels:
        beta = math.sqrt(geometry.min_pixels / area)
        new_w = math.ceil(width * beta / factor) * factor
        new_h = math.ceil(height * beta / factor) * factor
    return new_w, new_h


def tokens_for(width: int, height: int, geometry: Geometry) -> int:
    """How many image tokens a screenshot of this size costs."""
    new_w, new_h = smart_resize(width, height, geometry)
    return (new_w // geometry.factor) * (new_h // geometry.factor)


def tokens_of(grid_thw: np.ndarray, merge: int = 2) -> list[int]:
    """Image tokens of each row of a grid (n_images, 3)."""
    return [int(t * h * w) // merge**2 for t, h, w in np.asarray(grid_thw).reshape(-1, 3)]


_MADE: ByteCache[bytes, Image.Image] = ByteCache(4 * 2**20, lambda i: 4 * i.width * i.height)


def made_here(png: bytes, image: Image.Image) -> None:
    """Remember the RGB image that this process made a PNG of, so that it need not be read back.
    Whoever calls this promises that the PNG holds exactly these pixels."""
    _MADE.put(png, image)


def to_image(source: bytes | Image.Image) -> Image.Image:
    """An RGB image from encoded bytes; a file that cannot be read is the sender's mistake."""
    known = _MADE.get(source) if isinstance(source, bytes) else None
    return to_rgb(source) if known is None else known


@dataclass(slots=True)
class Vision:
    """The image processor of a policy, with a cache by content."""

    processor: Any
    """The family's transformers image processor; saved with the checkpoint."""
    cache_bytes: int = 256 * 2**20
    """Of images kept as patches: 0.4 MB each at 128 px, 50 MB at 1080p."""
    _lut: np.ndarray | None = None
    _cache: ByteCache[bytes, Patches] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._cache = ByteCache(self.cache_bytes, lambda patches: sum(a.nbytes for a in patches))

    @property
    def geometry(self) -> Geometry:
        size = self.processor.size
        return Geometry(
            patch=self.processor.patch_size,
            merge=self.processor.merge_size,
            min_pixels=int(size["shortest_edge"]),
            max_pixels=int(size["longest_edge"]),
        )

    def patchify(self, source: bytes | Image.Image) -> Patches:
        """Patches of one image; the arrays are shared with the cache and read-only."""
        if isinstance(source, Image.Image):
            source = to_rgb(source)  # raw bytes of a palette's picture do not say its colours
        key = _content_key(source)
        if (known := self._cache.get(key)) is not None:
            return known
        patches = self._patchify(to_image(source))
        for array in patches:
            array.setflags(write=False)
        self._cache.put(key, patches)
        return patches

    def patchify_all(self, images: Sequence[Image.Image]) -> Patches:
        """Patches of images that nobody asks for again, one behind the other: (n_patches,
        patch_dim) and (n_images, 3). Each is written once, where it is to lie, and none is cached:
        of fresh demonstrations the cache would only hold 0.4 MB each.
        """
        geometry = self.geometry
        fast = [smart_resize(i.width, i.height, geometry) == i.size for i in images]
        if not images or not all(fast):
            parts = [self.patchify(image) for image in images]
            if not parts:
                return np.zeros((0, 0), np.float32), np.zeros((0, 3), np.int64)
            return np.concatenate([p for p, _ in parts]), np.concatenate([g for _, g in parts])
        counts = [i.width * i.height // geometry.patch**2 for i in images]
        bounds = np.cumsum([0, *counts])
        depth = 3 * self.processor.temporal_patch_size * geometry.patch**2
        pixels = np.empty((int(bounds[-1]), depth), np.float32)
        grids = [
            self._cut(np.asarray(to_image(image)), geometry, pixels[first:last])[1]
            for image, first, last in zip(images, bounds[:-1], bounds[1:], strict=True)
        ]
        return pixels, np.concatenate(grids)

    def _patchify(self, image: Image.Image) -> Patches:
        geometry = self.geometry
        if smart_resize(image.width, image.height, geometry) == image.size:
            return self._cut(np.asarray(image), geometry)
        return self.reference(image)

    def reference(self, image: Image.Image) -> Patches:
        """The processor itself: the fast path's yardstick, and the way of images to be resized."""
        out = self.processor(images=[image], return_tensors="np")
        pixels = np.ascontiguousarray(out["pixel_values"], dtype=np.float32)
        return pixels, np.asarray(out["image_grid_thw"], dtype=np.int64)

    def _cut(self, rgb: np.ndarray, geometry: Geometry, out: np.ndarray | None = None) -> Patches:
        """The processor's layout (gh gw mh mw) (C T ph pw), values by table: 0.1 ms for 128 px."""
        patch, merge = geometry.patch, geometry.merge
        rows, cols = rgb.shape[0] // geometry.factor, rgb.shape[1] // geometry.factor
        channels = [row.take(rgb[:, :, c]) for c, row in enumerate(self._table())]
        blocks = np.stack(channels).reshape(3, rows, merge, patch, cols, merge, patch)
        blocks = blocks.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
        frames = self.processor.temporal_patch_size
        blocks = np.broadcast_to(blocks, (*blocks.shape[:5], frames, patch, patch))
        if out is None:
            out = np.empty((rows * cols * merge**2, 3 * frames * patch * patch), np.float32)
        pixels = out
        pixels.reshape(blocks.shape)[...] = blocks
        return pixels, np.array([[1, rows * merge, cols * merge]], dtype=np.int64)

    def _table(self) -> np.ndarray:
        """Normalised value of each byte in each channel (3, 256), asked of the processor itself."""
        if self._lut is None:
            side = self.geometry.factor
            ramp = np.arange(256, dtype=np.uint8)
            canvas = np.resize(ramp, (256, side))
            canvas[:] = ramp[:, None]
            image = Image.fromarray(np.stack([canvas] * 3, axis=-1))
            out = self.processor(images=[image], return_tensors="np", do_resize=False)
            self._lut = _first_columns(np.asarray(out["pixel_values"]), self.geometry, rows=256)
        return self._lut


def _first_columns(pixels: np.ndarray, geometry: Geometry, *, rows: int) -> np.ndarray:
    """Undo the patch layout of an image one token wide; its first column, (3, rows)."""
    merge, patch = geometry.merge, geometry.patch
    blocks = pixels.reshape(rows // geometry.factor, merge, merge, 3, -1, patch, patch)
    column = blocks[:, :, 0, :, 0, :, 0]  # (gh, mh, C, ph)
    return np.ascontiguousarray(column.transpose(2, 0, 1, 3).reshape(3, rows), dtype=np.float32)


def _content_key(source: bytes | Image.Image) -> bytes:
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=16).digest()
    head = f"{source.mode} {source.size} ".encode()
    return hashlib.blake2b(head + source.tobytes(), digest_size=16).digest()


def build_processor(
    geometry: Geometry = SMALL, *, mean: float = 0.91, std: float = 0.27
) -> Any:  # Qwen2VLImageProcessorPil
    """The real Qwen2-VL image processor; mean and std suit flat screens (CLIP's taught nothing)."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(
        patch_size=geometry.patch,
        merge_size=geometry.merge,
        size={"shortest_edge": geometry.min_pixels, "longest_edge": geometry.max_pixels},
        image_mean=[mean] * 3,
        image_std=[std] * 3,
    )
