"""The images of a request are named all, or not at all."""

import base64
from typing import Any

import pytest

from cua_lab.serving.request_images import request_images
from cua_lab.stitching.turn import image_key


def message(*urls: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": "Go."}, *parts]}


def data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def test_images_are_named_by_their_bytes_in_the_order_of_the_prompt() -> None:
    messages = [{"role": "system", "content": "Hi"}, message(data(b"a"), data(b"b")), message()]
    assert request_images([*messages, message(data(b"a"))]) == tuple(
        map(image_key, (b"a", b"b", b"a"))
    )


@pytest.mark.parametrize(
    "url", ["http://pictures/a.png", "data:image/png,raw", "data:x;base64,~~a"]
)
def test_one_image_that_cannot_be_named_makes_all_unknown(url: str) -> None:
    assert request_images([message(data(b"a"), url)]) is None
