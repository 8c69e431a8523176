"""What the filter needs to know of a screenshot, read once per path.

`header` opens the file and reads its size (40-70 microseconds); `decode` also reads every pixel
(about 10 ms for 1024x768) for what only pixels tell: truncated data, blank screens, hashes.

Invariant: a broken file is a fact with a sentence, never an exception. The cache is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from cua_lab.dataset.spaces import Size
from cua_lab.errors import LabError
from cua_lab.pictures import open_rgb, size_of

if TYPE_CHECKING:
    from PIL.Image import Image

CACHED = 16384
"""Screenshots remembered, about 0.3 kB each."""
BLANK_SHARE = 0.9995
"""Share of one grey level from which a screen counts as blank; a mouse pointer is 0.0003."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One screenshot as the filter sees it."""

    size: Size | None = None
    problem: str | None = None
    """Why it cannot be used: missing, not an image, truncated."""
    missing: bool = False
    blank: bool | None = None
    """`None` where the pixels were not read."""
    pixel_hash: bytes | None = None
    """16 bytes over size and RGB pixels: the same for a re-encoded copy."""
    dhash: int | None = None
    """64-bit difference hash: near for near pictures."""


def reader(*, decode: bool, cached: int = CACHED) -> Callable[[str], ImageFacts]:
    """A bounded, caching `path -> ImageFacts`."""

    @lru_cache(maxsize=cached)
    def facts(path: str) -> ImageFacts:
        return read_image(path, decode=decode)

    return facts


def read_image(path: str, *, decode: bool) -> ImageFacts:
    """The facts of one file."""
    size = None
    try:
        if not os.path.isfile(path):
            return ImageFacts(problem=f"{path} does not exist", missing=True)
        size = size_of(path, "the screenshot")
        return _pixel_facts(open_rgb(path, "the screenshot")) if decode else ImageFacts(size=size)
    except (LabError, ValueError) as error:  # ValueError: a path with a null byte
        return ImageFacts(size=size, problem=str(error))


def _pixel_facts(image: Image) -> ImageFacts:
    digest = blake2b(repr(image.size).encode(), digest_size=16)
    digest.update(image.tobytes())
    counts = image.convert("L").histogram()
    blank = max(counts) >= BLANK_SHARE * sum(counts)
    return ImageFacts(
        size=image.size, blank=blank, pixel_hash=digest.digest(), dhash=difference_hash(image)
    )


def difference_hash(image: Image) -> int:
    """dHash: is each of 8x8 cells darker than its right neighbour, as 64 bits.

    Flat screens have neighbours that are equal but for rounding, so a step counts from 2 grey
    levels up; otherwise the bits would be noise.
    """
    import numpy as np
    from PIL import Image

    small = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16)
    bits = (small[:, 1:] - small[:, :-1]) >= 2  # (8, 8)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def hamming(one: int, other: int) -> int:
    """The number of differing bits."""
    return (one ^ other).bit_count()
