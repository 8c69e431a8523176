"""Does the policy look? The same episode, played while it is shown other screenshots.

`OtherScreens` stands between the agent and the shim and replaces the k-th image of every prompt.
Invariant: the desktop, the grader and the words of the prompt are untouched, and an image of a
conversation is replaced by the same bytes in every turn, so that prompts still extend each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import httpx

from cua_lab.pictures import png_bytes, size_of
from cua_lab.policy.template import image_bytes, image_part

Screens = Callable[[int, bytes], bytes]
"""(index of the image in the conversation, the real PNG) -> the PNG to show."""


class OtherScreens(httpx.AsyncBaseTransport):
    """Replaces the images of chat completions; everything else passes."""

    def __init__(self, inner: httpx.AsyncBaseTransport, screens: Screens) -> None:
        self.inner = inner
        self.screens = screens

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        parts = [
            part
            for message in body["messages"]
            if isinstance(message.get("content"), list)
            for part in message["content"]
            if part.get("type") == "image_url"
        ]
        for index, part in enumerate(parts):
            part |= image_part(self.screens(index, image_bytes(part)))
        headers = [(k, v) for k, v in request.headers.items() if k.lower() != "content-length"]
        changed = httpx.Request(
            request.method,
            request.url,
            headers=headers,
            content=json.dumps(body).encode(),
            extensions=request.extensions,
        )
        return await self.inner.handle_async_request(changed)

    async def aclose(self) -> None:
        await self.inner.aclose()


def blank(index: int, real: bytes) -> bytes:
    """A plain grey screen of the same size."""
    from PIL import Image

    return png_bytes(Image.new("RGB", size_of(real), (232, 232, 232)))


def screens_of(others: Sequence[bytes]) -> Screens:
    """The screenshots of another episode, in its order; its last one stays when it runs out."""
    if not others:
        raise ValueError("an episode without screenshots cannot stand in for another one")

    def screens(index: int, real: bytes) -> bytes:
        return others[min(index, len(others) - 1)]

    return screens
