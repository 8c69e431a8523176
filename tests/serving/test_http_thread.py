"""An app on a loopback port for the length of a block."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from cua_lab.serving.http_thread import in_background


def test_it_answers_inside_the_block_and_is_gone_after_it() -> None:
    app = Starlette(routes=[Route("/health", lambda _: PlainTextResponse("well"))])
    with in_background(app) as (host, port):
        url = f"http://{host}:{port}/health"
        assert httpx.get(url, trust_env=False).text == "well"
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
