"""Ablations change what the policy sees, and nothing else."""

import asyncio
import io
import json

import httpx
from PIL import Image

from cua_lab.play.ablation import OtherScreens, blank, screens_of
from cua_lab.policy.template import image_bytes, image_part


def a_png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (96, 64), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def a_message(png: bytes) -> dict:
    return {"role": "user", "content": [image_part(png)]}


def sent_through(screens: object, *pngs: bytes) -> list[bytes]:
    seen: list[dict] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append({"body": json.loads(request.content), "timeout": request.extensions["timeout"]})
        return httpx.Response(200, json={})

    async def ask() -> None:
        transport = OtherScreens(httpx.MockTransport(answer), screens)
        async with httpx.AsyncClient(transport=transport, timeout=7) as client:
            messages = [{"role": "system", "content": "look"}, *map(a_message, pngs)]
            await client.post("http://engine/v1/chat/completions", json={"messages": messages})

    asyncio.run(ask())
    assert seen[0]["timeout"]["read"] == 7, "the client's time limit must survive the rewriting"
    assert seen[0]["body"]["messages"][0] == {"role": "system", "content": "look"}
    return [image_bytes(message["content"][0]) for message in seen[0]["body"]["messages"][1:]]


def test_a_blank_screen_has_the_size_of_the_real_one_and_one_colour() -> None:
    (shown,) = sent_through(blank, a_png("red"))
    image = Image.open(io.BytesIO(shown))
    assert image.size == (96, 64)
    assert len(image.getcolors()) == 1


def test_another_episodes_screens_come_in_its_order_and_its_last_one_stays() -> None:
    others = [a_png("blue"), a_png("green")]
    shown = sent_through(screens_of(others), a_png("red"), a_png("red"), a_png("red"))
    assert shown == [others[0], others[1], others[1]]
