"""Who may ask a server on this machine, and for what.

A server on loopback has no password, and a web page in any browser of the machine can send it
requests: simple POSTs from another origin, or whole conversations once the page's name has been
bound to 127.0.0.1 again (DNS rebinding). Invariant: a request passes only if it names this machine
(`localhost`, an address, or a name allowed at the start) and does not come from a web page, unless
that page's origin was allowed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cua_lab.errors import LabError
from cua_lab.serving.wire import WireError

JSON_TYPE = "application/json"
RETRY_S = 1
"""What a refused client is told to wait."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a server's owner allowed; the defaults suit an app inside its own process."""

    hosts: frozenset[str] = frozenset({"engine"})
    """Names of this machine besides `localhost`; any IP address passes, rebinding needs a name."""
    origins: frozenset[str] = frozenset()
    """Web pages that may ask, such as `http://localhost:3000`."""
    weights: tuple[Path, ...] | None = None
    """Folders that weights may be loaded from, with all below them; `None` is any folder."""
    max_body: int = 64 * 2**20
    """Bytes of a request."""
    max_open: int | None = None
    """Requests that are read, wait or decode at once; more are refused with 503. `None` is any."""
    off_loop: bool = False
    """Whether requests are read in a thread, so that a large image delays nobody's answer. Inside
    the process that trains they are read in place: there the order must not depend on time."""

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Why a request with these headers is refused, or `None`."""
        host = headers.get("host", "")
        if not self._knows(host):
            return (
                f"the request is for host {host!r:.80}, which is no name of this server; use"
                " 127.0.0.1, or start it with --allow-host NAME"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return (
                f"the request comes from a web page of {origin!r:.80}; if that is meant, start the"
                " server with --allow-origin"
            )
        site = headers.get("sec-fetch-site", "none")
        if origin is None and site != "none":
            return f"the request comes from a web page (sec-fetch-site {site!r:.20})"
        return None

    def _knows(self, host: str) -> bool:
        name = _host_name(host)
        return name == "localhost" or name in self.hosts or _is_address(name)

    def check_folder(self, folder: str) -> Path:
        """The folder of weights, if it may be loaded; nothing is looked up outside."""
        try:
            path = Path(folder).resolve()
            allowed = None if self.weights is None else [root.resolve() for root in self.weights]
        except (OSError, ValueError, RuntimeError) as error:
            raise LabError(f"model_path {folder!r:.80} is no path: {error}") from error
        if allowed is None or any(path.is_relative_to(root) for root in allowed):
            return path
        raise LabError(
            f"model_path {folder!r:.200} is outside the folders that this server loads weights"
            " from; start it with --weights FOLDER"
        )


class Guard:
    """Middleware that refuses with 403 what `Access` does not allow."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            reason = self._access.refusal(Headers(scope=scope))
            if reason is not None:
                await JSONResponse(_forbidden(reason), status_code=403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Admission:
    """Middleware that refuses with 503 what is more than a server can hold."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._most = access.max_open
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; those that only look (GET) are always answered."""
        if scope["type"] != "http" or scope["method"] == "GET" or self._most is None:
            await self._app(scope, receive, send)
            return
        if self._open >= self._most:
            headers = {"retry-after": str(RETRY_S)}
            answer = JSONResponse(_busy(self._most), status_code=503, headers=headers)
            await answer(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1


def check_json(content_type: str | None) -> None:
    """A page can send any other type without asking first."""
    kind = (content_type or "").split(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise WireError(
            f"the body's content-type is {content_type!r:.80}; send {JSON_TYPE}", "Bad Request"
        )


def _forbidden(reason: str) -> dict[str, Any]:
    return {
        "object": "error",
        "message": reason,
        "type": "Forbidden",
        "param": None,
        "code": 403,
    }


def _busy(most: int) -> dict[str, Any]:
    return {
        "object": "error",
        "message": f"{most} requests are in work, as many as this server takes; ask again later",
        "type": "ServiceUnavailable",
        "param": None,
        "code": 503,
    }


def _host_name(host: str) -> str:
    """A Host header without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
