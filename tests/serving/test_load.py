"""Many clients at once: each is answered with its own tokens, or told to come back."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from cua_lab.engine.engine import Engine
from cua_lab.policy.policy import Policy
from cua_lab.serving.access import Access
from cua_lab.serving.http_thread import in_background
from cua_lab.serving.retrying import RetryTransport
from cua_lab.serving.server import create_app
from tests.serving.conftest import words

CLIENTS = 200


@pytest.fixture(scope="module")
def ids(tiny: Policy) -> list[int]:
    """A token of each client's own."""
    found = list(dict.fromkeys(words(tiny, 0, 20 * CLIENTS)))[:CLIENTS]
    assert len(found) == CLIENTS
    return found


def body(token: int) -> dict[str, Any]:
    """A prompt of this token, whose answer can only be this token."""
    params = {"max_new_tokens": 3, "temperature": 1, "logit_bias": {str(token): 100}}
    return {
        "input_ids": [token] * 4,
        "sampling_params": params,
        "return_logprob": True,
        "return_prompt_token_ids": True,
    }


def asked(
    policy: Policy, ids: list[int], access: Access, *, retries: int = 0, refused: int = 0
) -> list[Any]:
    """The answers to all clients, who ask at once over HTTP; the engine decodes nothing before
    `refused` of them are answered."""
    engine = Engine(policy, context_length=64)
    answered = 0

    async def ask(client: httpx.AsyncClient, token: int) -> httpx.Response:
        nonlocal answered
        answer = await client.post("/generate", json=body(token))
        answered += 1
        if answered == refused:
            engine._model_lock.release()
        return answer

    async def all_of_them(url: str) -> list[httpx.Response]:
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=CLIENTS))
        transport = RetryTransport(inner, retries)
        async with httpx.AsyncClient(transport=transport, base_url=url, timeout=300) as client:
            return await asyncio.gather(*(ask(client, token) for token in ids))

    if refused:
        engine._model_lock.acquire()
    try:
        with in_background(create_app(engine, access=access)) as (host, port):
            return asyncio.run(all_of_them(f"http://{host}:{port}"))
    finally:
        engine.close()


def check_own_tokens(ids: list[int], answers: list[httpx.Response]) -> None:
    for token, answer in zip(ids, answers, strict=True):
        if answer.status_code == 200:
            meta = answer.json()["meta_info"]
            assert [said for _, said, _ in meta["output_token_logprobs"]] == [token] * 3
            assert answer.json()["prompt_token_ids"] == [token] * 4


def test_each_of_two_hundred_is_answered_with_its_own_or_told_to_come_back(
    tiny: Policy, ids: list[int]
) -> None:
    access = Access(max_open=24, off_loop=True)
    answers = asked(tiny, ids, access, refused=CLIENTS - 24)
    assert Counter(answer.status_code for answer in answers) == {200: 24, 503: CLIENTS - 24}
    check_own_tokens(ids, answers)
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert "24 requests are in work" in refused.json()["message"]


def test_without_a_limit_all_two_hundred_are_answered(tiny: Policy, ids: list[int]) -> None:
    answers = asked(tiny, ids, Access(off_loop=True))
    assert {answer.status_code for answer in answers} == {200}
    check_own_tokens(ids, answers)


def test_a_client_that_comes_back_as_it_is_told_is_answered(tiny: Policy, ids: list[int]) -> None:
    answers = asked(tiny, ids[:40], Access(max_open=16, off_loop=True), retries=60)
    assert {answer.status_code for answer in answers} == {200}
    check_own_tokens(ids[:40], answers)


def test_a_full_server_still_says_that_it_is_alive(tiny: Policy) -> None:
    engine = Engine(tiny, context_length=64)

    async def scenario() -> tuple[int, int, int]:
        app = create_app(engine, access=Access(max_open=1))
        transport = httpx.ASGITransport(app)
        (slot,) = engine.open_slots(2)[:1]  # whose round waits for the other
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            headers = {"x-cua-lab-slot": str(slot)}
            held = asyncio.ensure_future(client.post("/generate", json=body(5), headers=headers))
            while not engine._rounds._waiting:
                await asyncio.sleep(0.001)
            refused = await client.post("/generate", json=body(5))
            alive = await client.get("/health")
            engine.close_slot(1 - slot)
            return refused.status_code, alive.status_code, (await held).status_code

    assert asyncio.run(scenario()) == (503, 200, 200)
    engine.close()
