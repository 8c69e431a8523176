"""A server that cannot be measured is one line, before any desktop boots."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from cua_lab.errors import LabError
from cua_lab.serving.server_check import check_server

Answer = Callable[[httpx.Request], httpx.Response]


def check(answer: Answer, url: str = "http://server/v1/") -> None:
    async def asked() -> None:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url=url) as http:
            await check_server(http, "tiny")

    asyncio.run(asked())


def always(status: int, **content: object) -> Answer:
    return lambda request: httpx.Response(status, **content)


def dead(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("All connection attempts failed")


def without_a_list(request: httpx.Request) -> httpx.Response:
    known = request.url.path == "/v1/chat/completions"
    return httpx.Response(400 if known else 404, json={"message": "messages are missing"})


@pytest.mark.parametrize(
    "answer",
    [
        always(200, json={"data": [{"id": "other"}, {"id": "tiny"}]}),
        always(200, json={"object": "list"}),
        without_a_list,
    ],
)
def test_a_server_that_knows_the_model_or_does_not_say_may_be_measured(answer: Answer) -> None:
    check(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (dead, r"cannot reach http://server/v1: All connection attempts failed"),
        (always(401, json={"error": "no key"}), r"answered 401.*--key-file"),
        (always(503, text="starting"), r"answered 503: starting"),
        (always(200, html="<html>hi</html>"), r"answered text/html.* JSON was expected"),
        (always(200, json={"data": [{"id": "big"}]}), r"serves 'big', not 'tiny'"),
        (always(404, json={"detail": "Not Found"}), r"neither /models nor /chat/completions$"),
    ],
)
def test_every_other_server_is_one_line_that_says_what_is_wrong(answer: Answer, words: str) -> None:
    """`{"detail":"Not Found"}`, "Expecting value" and 4,742 lines of tracebacks were the words."""
    with pytest.raises(LabError, match=words) as error:
        check(answer)
    assert "\n" not in str(error.value)


def test_a_base_url_without_its_end_is_told_so() -> None:
    with pytest.raises(LabError, match="the base URL goes up to and with /v1"):
        check(always(404, json={"detail": "Not Found"}), "http://server/")
