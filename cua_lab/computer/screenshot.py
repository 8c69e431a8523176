"""A frame of the desktop becomes the screenshot that the model sees: scaled, and written as PNG.

    frame (height, width, 3) ──scale to the view's size──▶ image ──PNG, level 1──▶ bytes

A frame that already has the size is not touched; a whole factor averages blocks of pixels, any
other goes through HAMMING. Invariant: the picture has exactly the size
that coordinates are counted in.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from cua_lab.pictures import png_bytes
from cua_lab.policy.byte_cache import ByteCache
from cua_lab.policy.vision import made_here

SMALL_FRAME = 2**18
"""Bytes of a frame that is compared with earlier ones before it is encoded: the embedded desktop's
128x128 are 48 KB, 0.03 ms to compare and 0.2 ms to encode. A browser's hardly ever come twice."""
_PNGS: ByteCache[tuple[bytes, tuple[int, ...], tuple[int, int]], bytes] = ByteCache(
    16 * 2**20, lambda png: SMALL_FRAME + len(png)
)


def scaled_screenshot(frame: np.ndarray, size: tuple[int, int]) -> bytes:
    """A frame (height, width, 3) as PNG of this size; level 1 is 1.7x as fast as the default.

    Members of a group start from one frame: small frames are encoded once each, and whoever cuts
    the PNG into patches later finds its pixels (see `vision.made_here`).
    """
    if frame.size > SMALL_FRAME:
        return png_bytes(_scaled(_image_of(frame), size))
    whole = _whole_buffer(frame)
    key = ((frame if whole is None else whole).tobytes(), frame.shape, size)
    png = _PNGS.get(key)
    if png is None:
        image = _scaled(_image_of(frame), size)
        png = png_bytes(image)
        made_here(png, image)
        _PNGS.put(key, png)
    return png


def _scaled(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The image in the policy's size, RGB."""
    if image.size != size:
        across, down = image.width / size[0], image.height / size[1]
        if across == down == int(across):
            image = image.reduce(int(across))
        else:  # LANCZOS takes twice as long, and letters are no easier to read
            image = image.resize(size, Image.Resampling.HAMMING)
    return image.convert("RGB")


def _image_of(frame: np.ndarray) -> Image.Image:
    """The frame as an image; a view of the client's own RGBX buffer is not copied."""
    height, width = frame.shape[:2]
    if (whole := _whole_buffer(frame)) is not None:
        return Image.frombuffer("RGBX", (width, height), whole, "raw", "RGBX", 0, 1)
    return Image.fromarray(frame)


def _whole_buffer(frame: np.ndarray) -> np.ndarray | None:
    """The RGBX buffer (height, width, 4) that a frame is a view of, where it is one."""
    whole = frame.base
    if whole is None or whole.shape != (*frame.shape[:2], 4) or whole.strides != frame.strides:
        return None
    return whole
