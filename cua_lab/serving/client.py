"""The one call of the OpenAI SDK that HUD's agent makes, without the SDK's price.

`AsyncOpenAI` walks every message along its type annotations and starts a thread for each new
client: 4.5 of the 13.5 CPU-ms of a one-turn episode on the embedded desktop (hud 0.6.21, openai
3.57, one core). HUD takes any `model_client`; `ChatClient` has the same
`chat.completions.create`, sends the same body and reads the answer with the SDK's lenient types.
Invariant: an answer other than 200 raises with the server's words; nothing is retried.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx

from cua_lab.play.answers import readable

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
    ) -> "ChatCompletion":
        """POST one request; `extra_body` joins the body, as in the SDK."""
        from openai.types.chat import ChatCompletion

        response = await self._http.post("chat/completions", json=body | (extra_body or {}))
        if response.status_code != 200:
            raise EngineRefused(f"status {response.status_code}: {_words(response)}")
        return ChatCompletion.construct(**readable(response.json()))


def _words(response: httpx.Response) -> str:
    """The server's message: sglang has it at the top, vLLM and OpenAI under `error`."""
    try:
        body = response.json()
        return str(body.get("message") or body["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.text[:300]
