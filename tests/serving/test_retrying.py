"""A request that brought no answer is sent again; one that was answered never is."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cua_lab.serving.retrying import RetryTransport

BODY = b'{"messages": [], "seed": 7}'


def asked(outcomes: list[Any], retries: int) -> tuple[Any, list[bytes], list[float]]:
    """What came of a request whose tries end like this; the bodies sent, the seconds waited."""
    left: Iterator[Any] = iter(outcomes)
    sent: list[bytes] = []
    waited: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def ask() -> Any:
        transport = RetryTransport(httpx.MockTransport(handle), retries, sleep=sleep)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post("http://engine/v1/chat/completions", content=BODY)

    try:
        return asyncio.run(ask()), sent, waited
    except httpx.TransportError as error:
        return error, sent, waited


@pytest.mark.parametrize(
    "unheard",
    [
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("hung up"),
        httpx.Response(503),
        httpx.Response(429),
    ],
    ids=["refused", "hung up", "503", "429"],
)
def test_the_same_bytes_are_sent_until_they_are_answered(unheard: Any) -> None:
    answer, sent, waited = asked([unheard, unheard, httpx.Response(200, text="hi")], retries=3)
    assert answer.text == "hi"
    assert sent == [BODY] * 3
    assert 0.375 <= waited[0] <= 0.625, "0.5 s and a spread of a quarter"
    assert 0.75 <= waited[1] <= 1.25, "twice as long"


def test_the_server_says_when() -> None:
    busy = httpx.Response(503, headers={"retry-after": "7"})
    assert asked([busy, httpx.Response(200)], retries=1)[2] == [7.0]
    never = httpx.Response(503, headers={"retry-after": "999999999"})
    assert asked([never, httpx.Response(200)], retries=1)[2] == [30.0], "at most half a minute"


@pytest.mark.parametrize(
    "answered",
    [httpx.Response(200), httpx.Response(400), httpx.Response(500), httpx.ReadTimeout("slow")],
    ids=["200", "400", "500", "timeout"],
)
def test_an_answer_is_an_answer_and_what_may_still_run_is_not_started_twice(answered: Any) -> None:
    assert len(asked([answered], retries=5)[1]) == 1


def test_after_the_last_try_the_error_is_the_servers_own() -> None:
    answer, sent, _ = asked([httpx.ConnectError("refused")] * 3, retries=2)
    assert (str(answer), len(sent)) == ("refused", 3)
    answer, sent, _ = asked([httpx.Response(503, text="full")] * 3, retries=2)
    assert (answer.status_code, answer.text, len(sent)) == (503, "full", 3)
    assert len(asked([httpx.Response(503)], retries=0)[1]) == 1, "0 retries ask once"
