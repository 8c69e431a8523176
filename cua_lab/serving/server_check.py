"""Whether a server can be measured at all: asked before a desktop boots, and after a failure.

Invariant: `check_server` returns for an OpenAI-compatible server that knows the model, and raises
one `LabError` of one line for every other: dead, without `/v1`, not JSON, locked, another model.
"""

from __future__ import annotations

from typing import Any

import httpx

from cua_lab.errors import LabError

WIDTH = 200


async def check_server(http: httpx.AsyncClient, model: str) -> None:
    """Ask `/v1/models`; `http`'s base URL ends in `/v1/`."""
    answer = await _ask(http, "GET", "models")
    if answer.status_code in (404, 405):  # some servers list nothing and answer all the same
        await _check_chat(http)
        return
    if answer.status_code != 200:
        raise LabError(_refusal(http, answer))
    names = _names(_json(http, answer))
    if names and model not in names:
        raise LabError(
            f"{_url(http)} serves {', '.join(map(repr, names[:5]))}, not {model!r}; give --model as"
            " the server names it, or the URL of the server that you mean"
        )


async def _check_chat(http: httpx.AsyncClient) -> None:
    """An empty question is a mistake to every chat endpoint, and no path to everything else."""
    answer = await _ask(http, "POST", "chat/completions", json={})
    if answer.status_code in (404, 405):
        hint = "" if _url(http).endswith("/v1") else "; the base URL goes up to and with /v1"
        raise LabError(f"{_url(http)} has neither /models nor /chat/completions{hint}")
    if answer.status_code in (401, 403) or answer.status_code >= 500:
        raise LabError(_refusal(http, answer))
    _json(http, answer)


async def _ask(http: httpx.AsyncClient, method: str, path: str, **sent: Any) -> httpx.Response:
    try:
        return await http.request(method, path, timeout=30, **sent)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        words = str(error) or type(error).__name__
        raise LabError(f"cannot reach {_url(http)}: {words}; does the server run there?") from error


def _refusal(http: httpx.AsyncClient, answer: httpx.Response) -> str:
    hint = "; give its key with --key-file" if answer.status_code in (401, 403) else ""
    words = " ".join(answer.text.split())[:WIDTH]
    return f"{_url(http)} answered {answer.status_code}: {words}{hint}"


def _json(http: httpx.AsyncClient, answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        kind = answer.headers.get("content-type", "no content type")
        raise LabError(
            f"{_url(http)} answered {kind} where JSON was expected (starts"
            f" {answer.text[:40]!r}); is it an OpenAI-compatible server, and does the URL end in"
            " /v1?"
        ) from error


def _names(body: Any) -> list[str]:
    """The models that a server lists; none where it lists them in another way."""
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return []
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]


def _url(http: httpx.AsyncClient) -> str:
    return str(http.base_url).rstrip("/")
