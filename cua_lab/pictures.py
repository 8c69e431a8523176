"""Pictures at the borders of the lab: read, brought to RGB, written, and carried as data URLs.

    encoded bytes, a file, a PIL image --to_rgb, read_rgb, open_rgb--> RGB image
    image --png_bytes--> PNG --data_url--> "data:image/png;base64,..." --read_data_url--> bytes

Invariant: every part of the lab sees the same pixels of the same file. The rules are those of the
engines' own processors (transformers, vLLM and qwen_vl_utils): the EXIF orientation is applied and
transparency is composited on white. Whatever Pillow raises on a broken or oversized file becomes
one `LabError`.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cua_lab.errors import LabError

IMAGE_ERRORS: tuple[type[Exception], ...] = (
    OSError,  # also UnidentifiedImageError: truncated data, no image at all
    SyntaxError,  # a broken PNG chunk
    ValueError,
    EOFError,
    OverflowError,
    IndexError,
    RuntimeError,  # also NotImplementedError: a format's variant that Pillow cannot read
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,  # where warnings are errors
)
"""What Pillow raises on files that are broken, oversized or no images (11,200 damaged files of 16
formats gave six of these; the others are from its issues)."""
MAX_PIXELS = 64 * 2**20
"""A larger picture is refused by its header: an 8K screen has 33 megapixels, and decoding 169
megapixels took 42 s and 2.7 GB."""
ORIENTATION = 0x0112
"""EXIF tag: 1 is upright; 5 to 8 swap width and height."""
WHITE = (255, 255, 255, 255)


@contextmanager
def _readable(failed: str, hint: str = "") -> Iterator[None]:
    """Any error of a picture that is read inside becomes a `LabError`: what failed, why, a hint."""
    try:
        yield
    except LabError:
        raise
    except IMAGE_ERRORS as error:
        raise LabError(f"{failed}: {_reason(error)}{hint}") from error


def _reason(error: Exception) -> str:
    """The system's words for a file that cannot be opened, Pillow's for one that is broken."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a known format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


def to_rgb(source: bytes | Image.Image) -> Image.Image:
    """An upright RGB image on white. Raises `LabError` for bytes that are no whole image."""
    if isinstance(source, bytes):
        return read_rgb(source)
    upright = _upright(source)
    if upright.mode == "RGB" and "transparency" not in upright.info:
        return upright.copy() if upright is source else upright
    if upright.mode == "I" or upright.mode.startswith("I;16"):
        return _from_deep(upright)
    if upright.mode == "La":
        upright = upright.convert("LA")
    transparent = {"A", "a"} & set(upright.getbands()[-1:]) and upright.mode != "LAB"
    if transparent or upright.info.get("transparency") is not None:
        whole = upright.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", whole.size, WHITE), whole).convert("RGB")
    return upright.convert("RGB")


def read_rgb(data: bytes) -> Image.Image:
    """`to_rgb` of an encoded image."""
    named = f"an image of {len(data)} bytes (starts {data[:8].hex(' ')})"
    with _readable(f"cannot read {named}", "; send a PNG"), Image.open(io.BytesIO(data)) as image:
        _check_area(image, named)
        return to_rgb(image)


def open_rgb(path: str | Path, what: str = "the picture") -> Image.Image:
    """`to_rgb` of a file."""
    with _readable(f"{what} {path} cannot be read"), Image.open(path) as image:
        _check_area(image, f"{what} {path}")
        return to_rgb(image)


def size_of(source: bytes | str | Path, what: str = "the picture") -> tuple[int, int]:
    """Upright (width, height) of encoded bytes or of a file, from the header alone."""
    named = f"an image of {len(source)} bytes" if isinstance(source, bytes) else f"{what} {source}"
    opened = io.BytesIO(source) if isinstance(source, bytes) else source
    with _readable(f"{named} cannot be read"), Image.open(opened) as image:
        _check_area(image, named)
        return upright_size(image)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """(width, height) as shown.

    Of a PNG that was only opened, EXIF data ahead of the pixels is looked at, where all known
    writers put it: asking Pillow for more decodes the whole picture (10 ms instead of 0.05).
    """
    width, height = image.size
    early = {"exif", "Raw profile type exif", "XML:com.adobe.xmp"} & image.info.keys()
    # Pillow turns a TIFF's size itself.
    if image.format == "TIFF" or (image.format == "PNG" and not early):
        return width, height
    return (height, width) if _orientation(image) in (5, 6, 7, 8) else (width, height)


def png_bytes(
    image: Image.Image,
    *,
    compress_level: int = 1,
    max_width: int | None = None,
    palette: Sequence[tuple[int, int, int]] | None = None,
) -> bytes:
    """The image as PNG, scaled down to `max_width`; level 1 is 1.7x as fast as the default 6.

    With a `palette` it has these colours alone, which makes drawings small.
    """
    if image.mode != "RGB" or image.info:
        image = to_rgb(image)
    if max_width is not None and image.width > max_width:
        height = max(1, round(image.height * max_width / image.width))
        image = image.resize((max_width, height), Image.Resampling.LANCZOS)
    if palette is not None:
        ink = Image.new("P", (1, 1))
        ink.putpalette([value for colour in palette for value in colour])
        image = image.quantize(palette=ink, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=compress_level)
    return buffer.getvalue()


def base64_text(data: bytes) -> str:
    """Bytes as HUD's image contents and notebooks' outputs carry them."""
    return base64.b64encode(data).decode("ascii")


def data_url(data: bytes, kind: str = "png") -> str:
    """Encoded bytes of an image as a `data:` address."""
    return data_url_of(base64_text(data), f"image/{kind}")


def data_url_of(text: str, mime: str = "image/png") -> str:
    """Base64 text as a `data:` address."""
    return f"data:{mime};base64,{text}"


def read_data_url(url: object) -> bytes:
    """The encoded image of a data URL; raises `LabError` for anything else."""
    if not isinstance(url, str) or not url.startswith("data:image/") or ";base64," not in url:
        raise LabError(
            f"an image came as {str(url)[:40]!r}; send it as a data URL: data:image/png;base64,..."
        )
    return read_base64(url.split(";base64,", 1)[1])


def read_base64(text: str) -> bytes:
    """The bytes of base64 text; raises `LabError` where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LabError(f"an image's base64 cannot be decoded: {error}") from error


def _check_area(image: Image.Image, named: str) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise LabError(
            f"{named} has {image.width}x{image.height} px; at most {MAX_PIXELS:,} pixels are read"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF orientation says; the image itself where it says nothing."""
    if _orientation(image) not in range(2, 9):
        return image
    return ImageOps.exif_transpose(image)


def _orientation(image: Image.Image) -> object:
    """The EXIF tag; EXIF data that cannot be read says nothing, and spoils no whole picture."""
    try:
        return image.getexif().get(ORIENTATION, 1)
    except IMAGE_ERRORS:
        image.load()  # a broken picture is no matter of its EXIF data
        return 1


def _from_deep(image: Image.Image) -> Image.Image:
    """16-bit grey to 8 bits. Pillow's own conversion clips it, and nearly all of it turns white."""
    deep = np.asarray(image).astype(np.int64)  # (height, width)
    top = int(deep.max(initial=0))
    eight = np.clip(deep >> 8 if top > 255 or image.mode != "I" else deep, 0, 255)
    key = image.info.get("transparency")
    if isinstance(key, int):
        eight[deep == key] = 255
    return Image.fromarray(eight.astype(np.uint8)).convert("RGB")
