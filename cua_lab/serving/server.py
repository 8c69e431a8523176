"""The engine over HTTP, in sglang's dialect: a Starlette app, in process or behind uvicorn.

    app = create_app(engine)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine")

Invariant: every answer to a well-formed request has the fields of the recorded sglang answer, and
every mistake of a client is a 400 with sglang's body; what is the engine's own fault is a 500.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cua_lab.engine.engine import Engine
from cua_lab.engine.generation import GenerationRequest
from cua_lab.errors import LabError
from cua_lab.serving.stream import chat_stream
from cua_lab.serving.wire import WireError, error_body
from cua_lab.serving.wire_in import chat_request, generate_request
from cua_lab.serving.wire_out import ResponseContext, chat_response, generate_response

SLOT_HEADER = "x-cua-lab-slot"
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)

T = TypeVar("T")


def create_app(engine: Engine, *, model_name: str | None = None) -> Starlette:
    """The engine's app."""
    server = _Server(engine, model_name or engine.policy.name)
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
        exception_handlers={LabError: _bad_request},
    )


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LabError)
    return JSONResponse(error_body(error), status_code=400)


class _Server:
    def __init__(self, engine: Engine, model_name: str) -> None:
        self.engine = engine
        self.model_name = model_name
        self.started = int(time.time())

    async def chat(self, http: Request) -> Response:
        began = time.perf_counter()
        body = await _json(http)
        request, wanted = chat_request(body, self.engine, slot=_slot(http))
        if wanted.stream:
            events = chat_stream(self.engine, request, wanted, began)
            first = await anext(events)  # so that a refused request is a 400, not half a stream
            return StreamingResponse(_chain(first, events), media_type="text/event-stream")
        answer = await self._answer(http, request, began)
        return JSONResponse(chat_response(answer, wanted))

    async def generate(self, http: Request) -> Response:
        began = time.perf_counter()
        body = await _json(http)
        if body.get("stream"):
            raise LabError("/generate does not stream here; leave stream out")
        request = generate_request(body, self.engine, slot=_slot(http))
        answer = await self._answer(http, request, began)
        return JSONResponse(generate_response(answer, body))

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
        body = await _json(http)
        version = body.get("weight_version")
        try:
            if not isinstance(body.get("model_path"), str):
                raise LabError(f"model_path must be a folder, got {body.get('model_path')!r}")
            await asyncio.to_thread(self.engine.load_weights, body["model_path"], version)
        except LabError as error:
            failed = {"success": False, "message": str(error), "num_paused_requests": 0}
            return JSONResponse(failed, status_code=400)
        message = "Succeeded to update model weights."
        if version:
            message += f" Weight version updated to {version}."
        return JSONResponse({"success": True, "message": message, "num_paused_requests": 0})

    async def flush_cache(self, _http: Request) -> Response:
        await asyncio.to_thread(self.engine.flush_cache)
        return PlainTextResponse(FLUSHED)

    async def _answer(
        self, http: Request, request: GenerationRequest, began: float
    ) -> ResponseContext:
        generation = await _unless_gone(http, self.engine.complete(request))
        return ResponseContext(generation, request, self.engine.detokenizer, began)


async def _json(http: Request) -> dict[str, Any]:
    try:
        body = json.loads(await http.body())
    except json.JSONDecodeError as error:
        raise WireError(f"the body is not JSON: {error}", "Bad Request") from error
    if not isinstance(body, dict):
        raise WireError("the body must be a JSON object", "Bad Request")
    return body


def _slot(http: Request) -> int | None:
    text = http.headers.get(SLOT_HEADER)
    if text is None:
        return None
    if not text.isdecimal():
        raise LabError(f"header {SLOT_HEADER} must be a slot's number, got {text!r}")
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
