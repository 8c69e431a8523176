"""Web pages and other machines' names get no answer, and weights come from named folders."""

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from cua_lab.engine.engine import Engine
from cua_lab.policy.policy import Policy
from cua_lab.policy.template import image_part
from cua_lab.serving.access import Access
from cua_lab.serving.server import create_app
from tests.serving.conftest import screen

UPDATE = "/update_weights_from_disk"
CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}


@pytest.fixture(scope="module")
def engine(tiny: Policy) -> Engine:
    return Engine(tiny)


def send(
    engine: Engine, method: str, path: str, access: Access | None = None, **options: Any
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(engine, access=access or Access()))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await client.request(method, path, **options)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "host", ["localhost:30000", "127.0.0.1:30000", "[::1]:30000", "192.168.0.7", "engine"]
)
def test_this_machines_own_names_are_answered(engine: Engine, host: str) -> None:
    assert send(engine, "GET", "/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:30000", "127.0.0.1.evil.example", "localhost.evil", ""]
)
@pytest.mark.parametrize("path", ["/v1/models", UPDATE, "/flush_cache"])
def test_a_name_bound_to_this_machine_by_somebody_else_is_not(
    engine: Engine, host: str, path: str
) -> None:
    """DNS rebinding: the page's own name resolves to 127.0.0.1, so the browser lets it read."""
    answer = send(engine, "GET", path, headers={"host": host})
    assert answer.status_code == 403
    assert "--allow-host" in answer.json()["message"]


def test_a_name_that_was_allowed_is_answered(engine: Engine) -> None:
    access = Access(hosts=frozenset({"gpu.lab"}))
    assert send(engine, "GET", "/health", access, headers={"host": "GPU.lab:1"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_no_web_page_is_answered_unless_its_origin_was_allowed(
    engine: Engine, headers: dict[str, str]
) -> None:
    """A page inside the browser desktop is on this machine, too."""
    assert send(engine, "POST", CHAT, headers=headers, json=HELLO).status_code == 403
    assert send(engine, "GET", "/flush_cache", headers=headers).status_code == 403
    if "origin" in headers:
        access = Access(origins=frozenset({headers["origin"]}))
        assert send(engine, "POST", CHAT, access, headers=headers, json=HELLO).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
@pytest.mark.parametrize("path", [CHAT, "/generate", UPDATE])
def test_only_json_is_read(engine: Engine, path: str, kind: str | None) -> None:
    """A page may send these types to any address without asking the server first."""
    headers = {} if kind is None else {"content-type": kind}
    answer = send(engine, "POST", path, content=b'{"model_path": "/"}', headers=headers)
    assert answer.status_code == 400
    assert "application/json" in answer.json()["message"]


def test_weights_come_from_named_folders_only_and_others_are_not_looked_into(
    engine: Engine, tmp_path: Path
) -> None:
    """Else an answer tells whether a folder holds a config.json."""
    inside, outside = tmp_path / "runs", tmp_path / "private"
    for folder in (inside, outside):
        folder.mkdir()
    (outside / "config.json").write_text("{}")
    (inside / "link").symlink_to(outside)
    access = Access(weights=(inside,))
    for path in (outside, inside / ".." / "private", inside / "link", tmp_path / "nowhere"):
        answer = send(engine, "POST", UPDATE, access, json={"model_path": str(path)})
        assert (answer.status_code, answer.json()["success"]) == (400, False)
        assert "outside the folders" in answer.json()["message"]
    answer = send(engine, "POST", UPDATE, access, json={"model_path": str(inside)})
    assert "has no" in answer.json()["message"]


def bits(side: int) -> bytes:
    """A 1-bit PNG, which is small however large the picture."""
    out = io.BytesIO()
    Image.new("1", (side, side)).save(out, "PNG")
    return out.getvalue()


def showing(*images: bytes) -> dict[str, Any]:
    content = [image_part(image) for image in images]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1}


def test_an_image_too_large_is_refused_by_its_header(engine: Engine) -> None:
    answer = send(engine, "POST", CHAT, json=showing(bits(13000)))
    assert answer.status_code == 400
    assert "13000x13000 px is too large" in answer.json()["message"]


def test_images_too_many_for_the_context_are_refused_before_they_are_decoded(
    engine: Engine,
) -> None:
    answer = send(engine, "POST", CHAT, json=showing(*[bits(1024)] * 5))
    assert answer.status_code == 400
    assert "5120 tokens of images" in answer.json()["message"]


def test_text_that_cannot_fit_is_refused_before_it_is_tokenised(engine: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 10**5}]}
    answer = send(engine, "POST", CHAT, json=body)
    assert answer.status_code == 400
    assert "characters of text" in answer.json()["message"]


def test_a_body_too_large_is_refused(engine: Engine) -> None:
    answer = send(engine, "POST", CHAT, Access(max_body=1000), json=showing(screen(0)))
    assert answer.status_code == 400
    assert "more than 1000 bytes" in answer.json()["message"]


def test_a_request_read_in_a_thread_holds_up_nobody(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one request's images are decoded, others are answered."""
    import threading

    reading, go_on = threading.Event(), threading.Event()
    get = engine.chats.get

    def slow(*args: Any) -> Any:
        reading.set()
        assert go_on.wait(20)
        return get(*args)

    monkeypatch.setattr(engine.chats, "get", slow)

    async def both() -> tuple[int, int]:
        transport = httpx.ASGITransport(create_app(engine, access=Access(off_loop=True)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            chat = asyncio.ensure_future(client.post(CHAT, json=HELLO))
            while not reading.is_set():
                await asyncio.sleep(0.001)
            health = await client.get("/health")
            go_on.set()
            return health.status_code, (await chat).status_code

    assert asyncio.run(both()) == (200, 200)
