"""A prompt as the model gets it: expanded ids, positions and images.

Invariant: each image has exactly as many image tokens as its grid says, in order; `cache_ids`
equals `ids` but at those tokens, where it names the image by its content.
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from cua_lab.errors import LabError
from cua_lab.policy.positions import mrope_positions, next_position
from cua_lab.policy.vision import Vision, tokens_for, tokens_of

MAX_IMAGE_PIXELS = 40_000_000
"""Of one image: 8K has 33 million. A 1-bit PNG of 13000x13000 took 42 s and 2.7 GB."""
MAX_PROMPT_PIXELS = 160_000_000
"""Of a request's images together, before they are resized."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One image, cut into patches."""

    key: int
    """Made from the content; negative, so that no token id can equal it."""
    pixel_values: np.ndarray
    """float32 (patches, patch_dim)."""
    grid_thw: np.ndarray
    """int64 (1, 3)."""
    tokens: int
    pixels: int
    """Of the file, before it is resized."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request feeds to the model."""

    ids: np.ndarray
    """int64 (T,), one image token per visual token."""
    cache_ids: np.ndarray
    """int64 (T,), images by content: see `cache`."""
    position_ids: np.ndarray
    """int64 (3, T)."""
    next_position: int
    """Where the first sampled token stands."""
    images: tuple[ImageInput, ...]
    image_starts: tuple[int, ...]
    """Index of each image's first token."""

    @property
    def size(self) -> int:
        """Bytes, pixels included."""
        arrays = [self.ids, self.cache_ids, self.position_ids]
        return sum(a.nbytes for a in [*arrays, *(image.pixel_values for image in self.images)])

    def __len__(self) -> int:
        return len(self.ids)

    def head(self, length: int) -> Prompt:
        """The first `length` tokens, which must not end inside an image."""
        count = sum(start < length for start in self.image_starts)
        positions = self.position_ids[:, :length]
        return Prompt(
            self.ids[:length],
            self.cache_ids[:length],
            positions,
            next_position(positions),
            self.images[:count],
            self.image_starts[:count],
        )


def image_inputs(
    images: Sequence[bytes],
    vision: Vision,
    *,
    max_tokens: int | None = None,
    before: Sequence[ImageInput] = (),
) -> list[ImageInput]:
    """Patches of encoded images, whose headers are read before any of them is decoded.

    `max_tokens` is the room for all of them and those `before`; `None` is any.
    """
    sizes = [image_size(data) for data in images]
    pixels = sum(width * height for width, height in sizes) + sum(i.pixels for i in before)
    if pixels > MAX_PROMPT_PIXELS:
        raise LabError(
            f"the request's images have {pixels} pixels; at most {MAX_PROMPT_PIXELS} are read"
        )
    tokens = sum(tokens_for(width, height, vision.geometry) for width, height in sizes)
    tokens += sum(image.tokens for image in before)
    if max_tokens is not None and tokens > max_tokens:
        raise LabError(
            f"The input ({tokens} tokens of images) is longer than the model's context length"
            f" ({max_tokens} tokens)."
        )
    return [image_input(data, vision, w * h) for data, (w, h) in zip(images, sizes, strict=True)]


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height by the header; a file that is no image or too large is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                width, height = image.size
    except IMAGE_ERRORS as error:
        raise _unreadable(data, error) from error
    if width * height > MAX_IMAGE_PIXELS:
        raise LabError(
            f"an image of {width}x{height} px is too large; at most {MAX_IMAGE_PIXELS} pixels are"
            " read"
        )
    return width, height


IMAGE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    AttributeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""What Pillow's readers raise for files that are not what they say."""


def _unreadable(data: bytes, error: Exception) -> LabError:
    head = data[:8].hex(" ")
    return LabError(
        f"cannot read an image of {len(data)} bytes (starts {head}): {error}; send a PNG"
    )


def image_input(data: bytes, vision: Vision, pixels: int) -> ImageInput:
    """Patches of an encoded image of so many pixels."""
    try:
        pixel_values, grid_thw = vision.patchify(data)
    except IMAGE_ERRORS as error:
        raise _unreadable(data, error) from error
    digest = hashlib.blake2b(data, digest_size=8).digest()
    key = -1 - (int.from_bytes(digest, "little") >> 2)
    tokens = tokens_of(grid_thw, vision.geometry.merge)[0]
    return ImageInput(key, pixel_values, grid_thw, tokens, pixels)


def build_prompt(
    ids: Sequence[int],
    images: Sequence[ImageInput],
    *,
    image_token_id: int,
    vocab_size: int,
    merge: int,
    after: Prompt | None = None,
) -> Prompt:
    """A prompt from ids with ONE image token per image; `ids` and `images` go on from `after`."""
    single = np.asarray(ids, dtype=np.int64)
    if single.size == 0:
        raise LabError("input_ids cannot be empty.")
    outside = single[(single < 0) | (single >= vocab_size)]
    if outside.size:
        raise LabError(
            f"input_ids holds {int(outside[0])}, but the vocabulary has ids 0 to {vocab_size - 1}."
        )
    pads = np.flatnonzero(single == image_token_id)
    if len(pads) != len(images):
        raise LabError(
            f"the prompt has {len(pads)} image tokens but {len(images)} images came with it; send"
            " exactly one image token per image, the server expands it."
        )
    counts = np.ones(len(single), dtype=np.int64)
    counts[pads] = [image.tokens for image in images]
    starts = np.cumsum(counts) - counts
    keys = single.copy()
    keys[pads] = [image.key for image in images]
    expanded = np.repeat(single, counts)
    grids = np.array([image.grid_thw[0] for image in images], dtype=np.int64)
    positions = mrope_positions(
        expanded,
        grids,
        image_token_id=image_token_id,
        merge=merge,
        start=0 if after is None else after.next_position,
    )
    built = Prompt(
        ids=expanded,
        cache_ids=np.repeat(keys, counts),
        position_ids=positions,
        next_position=next_position(positions),
        images=tuple(images),
        image_starts=tuple(int(s) for s in starts[pads]),
    )
    return built if after is None else _joined(after, built)


def _joined(first: Prompt, second: Prompt) -> Prompt:
    """`second`, whose positions go on where those of `first` end, behind it."""
    return Prompt(
        ids=np.concatenate([first.ids, second.ids]),
        cache_ids=np.concatenate([first.cache_ids, second.cache_ids]),
        position_ids=np.concatenate([first.position_ids, second.position_ids], axis=1),
        next_position=second.next_position,
        images=first.images + second.images,
        image_starts=first.image_starts + tuple(len(first) + s for s in second.image_starts),
    )
