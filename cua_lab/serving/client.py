"""The one call of the OpenAI SDK that HUD's agent makes, without the SDK's price.

`AsyncOpenAI` walks every message along its type annotations and starts a thread for each new
client: 4.5 of the 13.5 CPU-ms of a one-turn episode on the embedded desktop (hud 0.6.21, openai
3.57, one core). HUD takes any `model_client`; `ChatClient` has the same
`chat.completions.create`, sends the same body and reads the answer with the SDK's lenient types.
Invariant: an answer other than 200 raises with the server's words; nothing is retried.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.serving.answers import readable
from cua_lab.serving.sampling_request import EXTRA_NEUTRAL
from cua_lab.serving.wire import json_bytes
from cua_lab.waiting import waiting

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


class EngineRefused(RuntimeError):
    """The inference server answered, but not with a completion."""


class ChatClient:
    """Sends chat completions through an httpx client whose `base_url` ends in `/v1`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.chat = SimpleNamespace(completions=self)

    async def create(
        self, *, extra_body: dict[str, Any] | None = None, **body: Any
    ) -> ChatCompletion:
        """POST one request; `extra_body` joins the body, as in the SDK."""
        from openai.types.chat import ChatCompletion

        content = json_bytes(body | (extra_body or {}))
        asked = sum(message.get("role") == "assistant" for message in body.get("messages", ()))
        async with waiting(f"the model's answer to turn {asked + 1}"):  # httpx has the limit
            response = await self._http.post(
                "chat/completions", content=content, headers={"content-type": "application/json"}
            )
        if response.status_code != 200:
            words = _words(response)
            raise EngineRefused(f"status {response.status_code}: {words}{_hint(response, words)}")
        return ChatCompletion.construct(**readable(_completion(response)))


def _completion(response: httpx.Response) -> dict[str, Any]:
    """The body of an answer with status 200, which is not always a completion."""
    try:
        body = response.json()
    except ValueError as error:
        kind = response.headers.get("content-type", "no content type")
        raise EngineRefused(
            f"status 200 with {kind} instead of JSON: {response.text[:80]!r}"
        ) from (error)
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
        raise EngineRefused(f"status 200 without choices: {response.text[:200]}")
    if not body["choices"] or not all(isinstance(entry, dict) for entry in body["choices"]):
        raise EngineRefused(f"status 200 with no choice in it: {response.text[:200]}")
    return body


def _hint(response: httpx.Response, words: str) -> str:
    """What to do about a server that takes only the sampling options of OpenAI's own API."""
    refused = [name for name in EXTRA_NEUTRAL if name in words]
    if response.status_code not in (400, 422) or not refused:
        return ""
    return (
        f" (the server does not take {refused[0]}; with --standard-fields `cua-lab eval` asks"
        " without top_k, min_p and repetition_penalty)"
    )


def _words(response: httpx.Response) -> str:
    """The server's message: sglang has it at the top, vLLM and OpenAI under `error`."""
    try:
        body = response.json()
        return str(body.get("message") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.text[:300]
