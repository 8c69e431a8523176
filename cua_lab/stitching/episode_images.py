"""Screenshots of an episode, matched to the image tokens of its sequences.

`EpisodeImages` holds the patches of all screenshots once, in the order they were taken. A sequence
shows those that its own request showed: each is found by its bytes (`Stitched.images`), since an
agent may send the last few only. Where the requests were not kept, a sequence of n images is taken
to show the first n. Invariant: image k of a sequence has exactly as many
image tokens as its screenshot has visual tokens by the processor's own grid; anything else raises
and names the image, both counts and both sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from cua_lab.pictures import size_of
from cua_lab.stitching.stitched import Segment, Stitched
from cua_lab.stitching.turn import image_key

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
    keys: tuple[str, ...] = ()
    """The `image_key` of each screenshot."""

    def for_sequence(self, stitched: Stitched) -> Patches:
        """Pixels and grid of the images in one sequence, as views; raises `ImageMismatch`."""
        which = self.which(stitched)
        runs = [segment for segment in stitched.segments if segment.role == "image"]
        for number, (run, screenshot) in enumerate(zip(runs, which, strict=True)):
            self._check(number, run, screenshot)
        sizes = self.image_grid_thw.prod(axis=1)
        ends = sizes.cumsum()
        if all(later == earlier + 1 for earlier, later in pairwise(which)):  # a view, as a rule
            first, last = (which[0], which[-1] + 1) if which else (0, 0)
            low = int(ends[first] - sizes[first]) if which else 0
            high = int(ends[last - 1]) if which else 0
            return self.pixel_values[low:high], self.image_grid_thw[first:last]
        parts = [self.pixel_values[int(ends[n] - sizes[n]) : int(ends[n])] for n in which]
        return np.concatenate(parts), self.image_grid_thw[list(which)]

    def which(self, stitched: Stitched) -> tuple[int, ...]:
        """The number of the screenshot behind each image of a sequence."""
        count = sum(segment.role == "image" for segment in stitched.segments)
        if stitched.images is None or not self.keys:
            if count > len(self.sizes):
                raise ImageMismatch(
                    f"the sequence has {count} images but only {len(self.sizes)} screenshots were"
                    " recorded; pass every screenshot the policy saw, in order"
                )
            return tuple(range(count))
        if count != len(stitched.images):
            raise ImageMismatch(
                f"the prompt has {count} images but the request showed {len(stitched.images)}"
                f" (turn {stitched.last_turn}); a template or a router drops images"
            )
        return self._found(stitched.images)

    def _found(self, images: tuple[str, ...]) -> tuple[int, ...]:
        if images == self.keys[: len(images)]:
            return tuple(range(len(images)))
        place = {key: number for number, key in reversed(list(enumerate(self.keys)))}
        lost = next((n for n, key in enumerate(images) if key not in place), None)
        if lost is not None:
            raise ImageMismatch(
                f"image {lost} of the request is none of the {len(self.keys)} recorded screenshots;"
                " was it resized or encoded again on the way?"
            )
        return tuple(place[key] for key in images)

    def _check(self, number: int, run: Segment, screenshot: int) -> None:
        t, rows, cols = (int(side) for side in self.image_grid_thw[screenshot])
        expected, found = t * rows * cols // self.merge**2, run.end - run.start
        if found != expected:
            patch = self._patch_side()
            width, height = self.sizes[screenshot]
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
    done: dict[str, Patches] = {}
    keys = tuple(map(image_key, screenshots))
    for key, png in zip(keys, screenshots, strict=True):
        if key not in done:
            done[key] = patchifier.patchify(png)
    return EpisodeImages(
        sizes=tuple(size_of(png) for png in screenshots),
        pixel_values=np.concatenate([done[key][0] for key in keys]),
        image_grid_thw=np.concatenate([done[key][1].reshape(1, 3) for key in keys]),
        merge=merge,
        keys=keys,
    )
