"""The engine over HTTP, in sglang's dialect: a Starlette app, in process or behind uvicorn.

    app = create_app(engine)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine")

Invariant: every answer to a well-formed request has the fields of the recorded sglang answer, and
every mistake of a client is a 400 with sglang's body; what is the engine's own fault is a 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.errors import LabError
from cua_lab.serving.access import Access, Admission, Guard, check_json
from cua_lab.serving.stream import chat_stream
from cua_lab.serving.wire import Body, WireError, error_body, json_bytes
from cua_lab.serving.wire_in import chat_request, generate_request
from cua_lab.serving.wire_out import ResponseContext, chat_response, generate_response
from cua_lab.serving.wire_values import parse_object

SLOT_HEADER = "x-cua-lab-slot"
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)

T = TypeVar("T")


class Json(JSONResponse):
    """JSON that may hold any text; a NaN is the engine's fault, and raises."""

    def render(self, content: Any) -> bytes:
        return json_bytes(content, allow_nan=False)


def create_app(
    engine: Engine, *, model_name: str | None = None, access: Access | None = None
) -> Starlette:
    """The engine's app; `access` says who may ask (see there for the defaults)."""
    access = access or Access()
    server = _Server(engine, model_name or engine.policy.name, access)
    post, both = ["POST"], ["GET", "POST"]
    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=post),
            Route("/generate", server.generate, methods=post),
            Route("/v1/models", server.models),
            Route("/health", server.health),
            Route("/model_info", server.model_info),
            Route("/get_model_info", server.model_info),
            Route("/update_weights_from_disk", server.update_weights, methods=post),
            Route("/flush_cache", server.flush_cache, methods=both),
        ],
        middleware=[Middleware(Guard, access=access), Middleware(Admission, access=access)],
        exception_handlers={LabError: _bad_request},
    )


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LabError)
    return Json(error_body(error), status_code=400)


class _Server:
    def __init__(self, engine: Engine, model_name: str, access: Access) -> None:
        self.engine = engine
        self.model_name = model_name
        self.access = access
        # One thread: tokenizer and caches are asked by one reader at a time.
        self.reader = ThreadPoolExecutor(1, "reader") if access.off_loop else None
        self.started = int(time.time())

    async def chat(self, http: Request) -> Response:
        began = time.perf_counter()
        slot = _slot(http)
        raw = await self._body(http)
        request, wanted = await self._read(
            lambda: chat_request(parse_object(raw), self.engine, slot=slot)
        )
        if wanted.stream:
            events = chat_stream(self.engine, request, wanted, began)
            first = await anext(events)  # so that a refused request is a 400, not half a stream
            return StreamingResponse(_chain(first, events), media_type="text/event-stream")
        answer = await self._answer(http, request, began)
        return Json(chat_response(answer, wanted))

    async def generate(self, http: Request) -> Response:
        began = time.perf_counter()
        slot = _slot(http)
        raw = await self._body(http)
        request, body = await self._read(lambda: _native(parse_object(raw), self.engine, slot))
        answer = await self._answer(http, request, began)
        return Json(generate_response(answer, body))

    async def models(self, _http: Request) -> Response:
        card = {
            "id": self.model_name,
            "object": "model",
            "created": self.started,
            "owned_by": "cua-lab",
            "root": self.model_name,
            "parent": None,
            "max_model_len": self.engine.context_length,
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def health(self, _http: Request) -> Response:
        return Response(status_code=200)

    async def model_info(self, _http: Request) -> Response:
        info = {
            "model_path": self.model_name,
            "tokenizer_path": self.model_name,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": self.engine.weight_version,
        }
        return JSONResponse(info)

    async def update_weights(self, http: Request) -> Response:
        """New weights from a folder; the caches always go, whatever `flush_cache` says.

        With `flush_cache=false` sglang mixes old keys with new weights until it is flushed.
        """
        body = parse_object(await self._body(http))
        try:
            folder, version = self._update(body)
            await asyncio.to_thread(_load, self.engine, folder, version)
        except LabError as error:
            failed = {"success": False, "message": str(error), "num_paused_requests": 0}
            return Json(failed, status_code=400)
        message = "Succeeded to update model weights."
        if version:
            message += f" Weight version updated to {version}."
        return Json({"success": True, "message": message, "num_paused_requests": 0})

    async def flush_cache(self, _http: Request) -> Response:
        await asyncio.to_thread(self.engine.flush_cache)
        return PlainTextResponse(FLUSHED)

    def _update(self, body: Body) -> tuple[Path, str | None]:
        """Folder and version of an update, if both may be used."""
        folder, version = body.get("model_path"), body.get("weight_version")
        if not isinstance(folder, str):
            raise LabError(f"model_path must be a folder, got {folder!r:.80}")
        if version is not None and not isinstance(version, str):
            raise LabError(f"weight_version must be a string, got {version!r:.80}")
        return self.access.check_folder(folder), version

    async def _body(self, http: Request) -> bytes:
        """The body, refused as soon as it is too large."""
        check_json(http.headers.get("content-type"))
        raw = bytearray()
        async for chunk in http.stream():
            raw += chunk
            if len(raw) > self.access.max_body:
                raise WireError(f"the body has more than {self.access.max_body} bytes")
        return bytes(raw)

    async def _read(self, read: Callable[[], T]) -> T:
        """What `read` makes of a request; too deep a nesting is the client's mistake."""
        try:
            if self.reader is None:
                return read()
            return await asyncio.get_running_loop().run_in_executor(self.reader, read)
        except RecursionError as error:
            raise WireError("the body is nested too deeply", "Bad Request") from error

    async def _answer(
        self, http: Request, request: GenerationRequest, began: float
    ) -> ResponseContext:
        generation = await _unless_gone(http, self.engine.complete(request))
        return ResponseContext(generation, request, self.engine.detokenizer, began)


def _load(engine: Engine, folder: Path, version: str | None) -> None:
    try:
        engine.load_weights(folder, version)
    except (OSError, ValueError) as error:  # a name too long, a file that is no safetensors
        raise LabError(f"{str(folder)[:200]} cannot be loaded: {error}") from error


def _native(body: Body, engine: Engine, slot: int | None) -> tuple[GenerationRequest, Body]:
    if body.get("stream"):
        raise LabError("/generate does not stream here; leave stream out")
    return generate_request(body, engine, slot=slot), body


def _slot(http: Request) -> int | None:
    text = http.headers.get(SLOT_HEADER)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 10:
        raise LabError(f"header {SLOT_HEADER} must be a slot's number, got {text!r:.40}")
    return int(text)


async def _unless_gone(http: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    finally:
        gone.cancel()
        task.cancel()


async def _hung_up(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    with contextlib.suppress(asyncio.CancelledError):
        async for event in rest:
            yield event
