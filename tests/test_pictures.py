"""One set of pixels for one file, everywhere, and one error for a file that has none."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from transformers.image_transforms import convert_to_rgb

from cua_lab.dataset.image_facts import read_image
from cua_lab.dataset.omniparser import draw
from cua_lab.errors import LabError
from cua_lab.pictures import (
    MAX_PIXELS,
    data_url,
    open_rgb,
    png_bytes,
    read_data_url,
    read_rgb,
    size_of,
    to_rgb,
)
from cua_lab.policy.template import image_bytes, image_part
from cua_lab.policy.vision import build_processor, to_image
from cua_lab.viz.filmstrip import marked
from cua_lab.viz.frames import Frame, png_uri

RAMP = np.arange(24 * 16, dtype=np.uint16).reshape(16, 24)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def rgb():
    pixels = np.stack([RAMP % 256, RAMP * 3 % 256, RAMP * 7 % 256], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def rgba():
    return Image.fromarray(np.dstack([np.asarray(rgb()), (RAMP * 5 % 256).astype(np.uint8)]))


def sideways(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(rgb(), exif=exif)


TRANSPARENT = {
    "RGBA": lambda: encoded(rgba()),
    "LA": lambda: encoded(rgba().convert("LA")),
    "palette with alpha": lambda: encoded(rgba().quantize(32)),
    "palette with one clear colour": lambda: encoded(rgb().quantize(32), transparency=3),
    "RGB with one clear colour": lambda: encoded(rgb(), transparency=rgb().getpixel((5, 5))),
    "grey with one clear level": lambda: encoded(rgb().convert("L"), transparency=7),
    "1 bit with one clear level": lambda: encoded(rgb().convert("1"), transparency=0),
    "GIF": lambda: encoded(rgb().quantize(32), "GIF", transparency=3),
    "WebP": lambda: encoded(rgba(), "WEBP", lossless=True, exact=True),
}


@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparency_lies_on_white_as_in_the_processors_of_the_engines(name):
    """vllm-project/vllm#18569, QwenLM/Qwen3-VL#661: black where others see white."""
    data = TRANSPARENT[name]()
    expected = convert_to_rgb(Image.open(io.BytesIO(data)), return_numpy=True)
    np.testing.assert_array_equal(np.asarray(read_rgb(data)), expected)
    processor = build_processor()
    ours = processor(images=[to_image(data)], return_tensors="np")["pixel_values"]
    theirs = processor(images=[Image.open(io.BytesIO(data))], return_tensors="np")["pixel_values"]
    np.testing.assert_array_equal(ours, theirs)


def test_a_clear_pixel_is_white():
    assert to_rgb(Image.new("RGBA", (2, 2), (0, 0, 0, 0))).getpixel((0, 0)) == (255, 255, 255)
    assert to_rgb(Image.new("La", (2, 2), (0, 0))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_file_says(orientation, tmp_path):
    """sgl-project/sglang#33464, vllm-project/vllm#44974."""
    data = sideways(orientation)
    turned = orientation >= 5
    size = (16, 24) if turned else (24, 16)
    path = tmp_path / "a.png"
    path.write_bytes(data)
    upright = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: np.swapaxes(a, 0, 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(np.swapaxes(a, 0, 1), 2),
        8: np.rot90,
    }[orientation](np.asarray(rgb()))
    np.testing.assert_array_equal(np.asarray(read_rgb(data)), upright)
    np.testing.assert_array_equal(np.asarray(open_rgb(path)), upright)
    assert to_image(data).size == size_of(data) == size_of(path) == size
    for decode in (False, True):
        assert read_image(str(path), decode=decode).size == size
    assert marked(Frame(Image.open(path))).size == (224, 336 if turned else 149)
    assert draw(Image.open(path), ()).size == size
    assert read_rgb(read_data_url(png_uri(Image.open(path)))).size == size


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "TIFF"])
def test_other_formats_are_turned_too(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(rgb(), kind, exif=exif)
    assert read_rgb(data).size == size_of(data) == (16, 24)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_exif_data_that_is_broken_spoils_no_picture():
    data = encoded(rgb(), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    np.testing.assert_array_equal(np.asarray(read_rgb(data)), np.asarray(rgb()))


def test_sixteen_bits_of_grey_are_scaled_not_clipped_to_white():
    deep = np.linspace(0, 65535, 384).astype(np.uint16).reshape(16, 24)
    found = np.asarray(read_rgb(encoded(Image.fromarray(deep))))
    np.testing.assert_array_equal(found, np.repeat((deep >> 8)[:, :, None], 3, axis=2))
    clear = read_rgb(encoded(Image.fromarray(deep), transparency=0))
    assert clear.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "RGBX"])
def test_every_mode_becomes_rgb(mode):
    assert to_rgb(Image.new(mode, (3, 2))).mode == "RGB"


def test_an_rgb_image_is_copied_and_never_changed():
    image = rgb()
    copy = to_rgb(image)
    copy.paste((0, 0, 0), (0, 0, 9, 9))
    np.testing.assert_array_equal(np.asarray(image), np.asarray(rgb()))


def header(width, height):
    """A PNG of this size that ends after its header."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 9) + b"IDAT"


BROKEN = {
    "too large": header(30_000, 30_000),
    "larger than any screen": header(9_000, 9_000),
    "cut": encoded(rgb())[:100],
    "no pixels": header(20, 20),
    "empty": b"",
    "text": b"not an image at all",
    "a broken chunk": encoded(rgb())[:40] + b"\xff" * 30,
    "a broken TIFF": encoded(rgb(), "TIFF")[:-60],
    "a broken GIF": encoded(rgb().quantize(8), "GIF")[:40],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_without_a_whole_picture_is_one_error(name, tmp_path):
    """sgl-project/sglang#28587: a header of 30000x30000 ended the server's answer with a 500."""
    data, path = BROKEN[name], tmp_path / "bad.png"
    path.write_bytes(data)
    with pytest.raises(LabError, match=r"an image of \d+ bytes"):
        read_rgb(data)
    with pytest.raises(LabError, match=r"bad\.png"):
        open_rgb(path)
    assert read_image(str(path), decode=True).problem


def test_a_folder_or_a_missing_file_is_said_in_the_systems_words(tmp_path):
    with pytest.raises(LabError, match=r"the screenshot .*none\.png cannot be read: No such file"):
        open_rgb(tmp_path / "none.png", "the screenshot")
    with pytest.raises(LabError, match="Is a directory"):
        size_of(tmp_path)


def test_the_limit_is_above_every_screen():
    assert MAX_PIXELS > 7680 * 4320


def test_a_data_url_is_read_back_to_the_same_bytes():
    data = png_bytes(rgb())
    assert read_data_url(data_url(data)) == image_bytes(image_part(data)) == data
    assert read_rgb(data).tobytes() == rgb().tobytes()


@pytest.mark.parametrize(
    "url", [None, 7, "http://example.com/a.png", "data:text/html;base64,AA==", "data:image/png,AA"]
)
def test_only_a_data_url_of_an_image_is_read(url):
    with pytest.raises(LabError, match="send it as a data URL"):
        read_data_url(url)


def test_base64_that_is_none_is_an_error_for_people():
    with pytest.raises(LabError, match="base64"):
        read_data_url("data:image/png;base64,@@@@")


def test_a_wide_picture_is_scaled_down_and_a_small_one_is_left_alone():
    assert size_of(png_bytes(Image.new("RGB", (400, 100)), max_width=96)) == (96, 24)
    assert size_of(png_bytes(Image.new("RGB", (40, 10)), max_width=96)) == (40, 10)
