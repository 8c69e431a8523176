"""The lean client reads real servers' answers as the OpenAI SDK does, and passes on their words."""

import asyncio
from typing import Any

import httpx
import pytest

from cua_lab.serving.client import ChatClient, EngineRefused


def create(status: int, answer: Any, **request: Any) -> tuple[Any, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(sent: httpx.Request) -> httpx.Response:
        seen.append(sent)
        return httpx.Response(status, json=answer)

    async def ask() -> Any:
        transport = httpx.MockTransport(handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine/v1/") as http:
            return await ChatClient(http).chat.completions.create(**request)

    return asyncio.run(ask()), seen


def test_extra_body_joins_the_request_and_unknown_fields_of_the_answer_survive() -> None:
    """sglang's `metadata.weight_versions` is a list where the SDK's types want a string."""
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi"},
                "finish_reason": "stop",
                "token_ids": [1, 2],
            }
        ],
        "metadata": {"weight_versions": [{"version": "default", "start": 0, "end": 2}]},
    }
    completion, (request,) = create(200, answer, model="m", extra_body={"return_token_ids": True})
    assert completion.choices[0].token_ids == [1, 2]
    assert completion.choices[0].message.content == "hi"
    assert request.url.path == "/v1/chat/completions"
    assert b'"return_token_ids":true' in request.content


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "the context is too long", "code": 400},
        {"error": {"message": "the context is too long"}},
    ],
    ids=["sglang", "vllm"],
)
def test_a_refusal_raises_with_the_servers_own_words(body: dict[str, Any]) -> None:
    with pytest.raises(EngineRefused, match="status 400: the context is too long"):
        create(400, body, model="m")
