"""Screenshots of an episode, matched to the image tokens of its sequences.

`EpisodeImages` holds the patches of all screenshots once, in the order the policy saw them; each
sequence reads a prefix of the same arrays. Invariant: image k of a sequence has exactly as many
image tokens as its screenshot has visual tokens by the processor's own grid; anything else raises
and names the image, both counts and both sizes.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cua_lab.pictures import size_of
from cua_lab.stitching.stitched import Segment, Stitched

Patches = tuple[np.ndarray, np.ndarray]
"""pixel_values float32 (n_patches, patch_dim), grid_thw int64 (1, 3)."""


class ImageMismatch(ValueError):
    """The screenshots are not the images the policy saw."""


class Patchifier(Protocol):
    """An image processor: `cua_lab.policy.vision.Vision`, or any with the same method."""

    def patchify(self, source: bytes, /) -> Patches:
        """Patches of one encoded image."""


@dataclass(frozen=True, slots=True)
class EpisodeImages:
    """All screenshots of an episode as patches."""

    sizes: tuple[tuple[int, int], ...]
    """(width, height) of each screenshot as it was sent, px."""
    pixel_values: np.ndarray  # float32 (n_patches, patch_dim)
    image_grid_thw: np.ndarray  # int64 (n_images, 3)
    merge: int = 2
    """Patches per visual token along each side."""

    def for_sequence(self, stitched: Stitched) -> Patches:
        """Pixels and grid of the images in one sequence, as views; raises `ImageMismatch`."""
        runs = [segment for segment in stitched.segments if segment.role == "image"]
        if len(runs) > len(self.sizes):
            raise ImageMismatch(
                f"the sequence has {len(runs)} images but only {len(self.sizes)} screenshots were"
                " recorded; pass every screenshot the policy saw, in order"
            )
        for number, run in enumerate(runs):
            self._check(number, run)
        patches = int(self.image_grid_thw[: len(runs)].prod(axis=1).sum())
        return self.pixel_values[:patches], self.image_grid_thw[: len(runs)]

    def _check(self, number: int, run: Segment) -> None:
        t, rows, cols = (int(side) for side in self.image_grid_thw[number])
        expected, found = t * rows * cols // self.merge**2, run.end - run.start
        if found != expected:
            patch = self._patch_side()
            width, height = self.sizes[number]
            raise ImageMismatch(
                f"image {number} (seen in turn {run.turn}) has {found} image tokens, but its"
                f" screenshot of {width}x{height} px, resized to {cols * patch}x{rows * patch} px,"
                f" has {expected} visual tokens; a screenshot is missing or in the wrong place, or"
                " the server's image processor has other limits"
            )

    def _patch_side(self) -> int:
        """From patch_dim = 3 channels x 2 frames x side x side."""
        return math.isqrt(self.pixel_values.shape[1] // 6)


def episode_images(
    screenshots: Sequence[bytes], patchifier: Patchifier, *, merge: int = 2
) -> EpisodeImages:
    """Process each distinct screenshot once."""
    if not screenshots:
        return EpisodeImages((), np.zeros((0, 0), np.float32), np.zeros((0, 3), np.int64), merge)
    done: dict[bytes, Patches] = {}
    keys = [hashlib.blake2b(png, digest_size=16).digest() for png in screenshots]
    for key, png in zip(keys, screenshots, strict=True):
        if key not in done:
            done[key] = patchifier.patchify(png)
    return EpisodeImages(
        sizes=tuple(size_of(png) for png in screenshots),
        pixel_values=np.concatenate([done[key][0] for key in keys]),
        image_grid_thw=np.concatenate([done[key][1].reshape(1, 3) for key in keys]),
        merge=merge,
    )
