"""Pixels in every format a client may ask for, and the dirty rectangles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cua_lab.desktop.encodings import Frame, Shown, dirty_boxes
from cua_lab.desktop.geometry import Box
from cua_lab.desktop.rfb import RFBServer

from .rawclient import RawClient, within_limit

FORMATS = {
    "rgbx little": (32, 0, (255, 255, 255), (0, 8, 16)),
    "bgrx little": (32, 0, (255, 255, 255), (16, 8, 0)),
    "xrgb big": (32, 1, (255, 255, 255), (16, 8, 0)),
    "xbgr big": (32, 1, (255, 255, 255), (0, 8, 16)),
    "rgbx high bytes": (32, 0, (255, 255, 255), (24, 16, 8)),
    "30 bit deep colour": (32, 0, (1023, 1023, 1023), (20, 10, 0)),
    "24 bits little": (24, 0, (255, 255, 255), (16, 8, 0)),
    "24 bits big": (24, 1, (255, 255, 255), (16, 8, 0)),
    "565 little": (16, 0, (31, 63, 31), (11, 5, 0)),
    "565 big": (16, 1, (31, 63, 31), (11, 5, 0)),
    "555 little": (16, 0, (31, 31, 31), (10, 5, 0)),
    "bgr233": (8, 0, (7, 7, 3), (0, 3, 6)),
    "one bit a channel": (8, 1, (1, 1, 1), (2, 1, 0)),
}


class Noise:
    """A screen on which every pixel differs from its neighbours."""

    size = (40, 30)

    def __init__(self):
        values = np.random.default_rng(7).integers(0, 256, (30, 40, 3), np.uint8)
        self.image = Image.fromarray(values)

    def draw(self):
        return self.image

    def reset(self, seed): ...
    def key(self, keysym, down): ...
    def pointer(self, x, y, buttons): ...
    def state(self):
        return {}


def unpacked(body: bytes, bits: int, big: int, shape: tuple[int, int]) -> np.ndarray:
    """The pixel values, put together byte by byte."""
    octets = np.frombuffer(body, np.uint8).reshape(*shape, bits // 8).astype(np.uint64)
    order = range(bits // 8)[::-1] if big else range(bits // 8)
    return sum(octets[..., i] << np.uint64(8 * place) for place, i in enumerate(order))


@pytest.mark.parametrize("encoding", [0, 6])
@pytest.mark.parametrize("name", FORMATS)
def test_a_client_gets_the_pixel_format_that_it_asks_for(name, encoding):
    bits, big, maxima, shifts = FORMATS[name]

    async def scenario():
        app = Noise()
        async with RFBServer(app, zlib_level=1) as server:
            client = await RawClient.connect(server.port)
            client.set_format(bits, big, maxima, shifts)
            client.set_encodings(encoding)
            for box in ((0, 0, 40, 30), (3, 4, 11, 9)):
                x, y, w, h = box
                client.ask(False, box)
                ((code, got, body),) = await client.update(bits // 8)
                assert (code, got) == (encoding, box)
                values = unpacked(body, bits, big, (h, w))
                rgb = np.asarray(app.draw())[y : y + h, x : x + w].astype(int)
                for i, (top, shift) in enumerate(zip(maxima, shifts, strict=True)):
                    level = (values >> np.uint64(shift)).astype(int) & top
                    assert (level == np.floor(rgb[..., i] * top / 255 + 0.5)).all(), f"channel {i}"
            client.close()

    within_limit(scenario)


def test_a_client_without_true_colour_gets_a_colour_map_first():
    async def scenario():
        app = Noise()
        async with RFBServer(app) as server:
            client = await RawClient.connect(server.port)
            client.set_format(8, 0, (0, 0, 0), (0, 0, 0), true_colour=0)
            client.ask(False)
            head = await client.reader.readexactly(6)
            assert head == b"\1\0\0\0\1\0"  # SetColourMapEntries, from 0, 256 of them
            colours = np.frombuffer(await client.reader.readexactly(256 * 6), ">u2").reshape(-1, 3)
            ((_, _, body),) = await client.update(1)
            shown = colours[np.frombuffer(body, np.uint8)].reshape(30, 40, 3) // 257
            error = np.abs(shown.astype(int) - np.asarray(app.draw()))
            assert (error.max(axis=(0, 1)) <= (19, 19, 43)).all(), "half a step of each channel"
            client.close()

    within_limit(scenario)


def test_a_change_of_format_sends_the_screen_anew():
    async def scenario():
        async with RFBServer(Noise()) as server:
            client = await RawClient.connect(server.port)
            await client.screen()
            client.set_format(16, 0, (31, 63, 31), (11, 5, 0))
            client.ask(incremental=True)
            ((_, box, _),) = await client.update(2)
            assert box == (0, 0, 40, 30)
            client.close()

    within_limit(scenario)


@settings(max_examples=50)
@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.lists(st.tuples(st.integers(0, 69), st.integers(0, 69)), max_size=30),
)
def test_dirty_boxes_cover_every_change_and_do_not_overlap(width, height, points):
    changed = np.zeros((height, width), bool)
    for x, y in points:
        changed[y % height, x % width] = True
    area = Box.at(5, 9, width, height)
    count = np.zeros((height, width), int)
    for box in dirty_boxes(changed, area):
        part = count[box.top - 9 : box.bottom - 9, box.left - 5 : box.right - 5]
        assert part.shape == (box.height, box.width), "inside the area"
        part += 1
    assert count.max(initial=0) <= 1
    assert (count[changed] == 1).all()


@settings(max_examples=50)
@given(st.data())
def test_applying_the_differences_makes_the_clients_copy_right(data):
    """Whatever areas were asked for before, and whatever changed in between."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pixels = rng.integers(0, 256, (40, 50, 3), np.uint8)
    copy, shown = np.zeros_like(pixels), Shown()
    for _ in range(data.draw(st.integers(1, 6))):
        y, x = rng.integers(0, 40), rng.integers(0, 50)
        pixels[y : y + rng.integers(1, 20), x : x + rng.integers(1, 20)] = rng.integers(0, 256)
        frame = Frame(Image.fromarray(pixels))
        left, top = int(rng.integers(0, 40)), int(rng.integers(0, 30))
        area = Box.at(left, top, int(rng.integers(1, 51 - left)), int(rng.integers(1, 41 - top)))
        boxes = shown.differences(frame, area)
        for box in boxes:
            part = np.s_[box.top : box.bottom, box.left : box.right]
            copy[part] = pixels[part]
        if boxes:
            shown.take(frame, boxes)
        whole = np.s_[area.top : area.bottom, area.left : area.right]
        assert (copy[whole] == pixels[whole]).all()
