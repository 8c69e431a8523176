"""Faults for one episode of a step: where each strikes, and what is expected of it.

A fault is installed for all episodes and acts where `VICTIM` is set: a context variable that HUD's
tasks, the env's server and the tool inherit from the one episode that `play` is called with.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from cua_lab.computer.screen import DeadScreen
from cua_lab.computer.tool import ComputerTool
from cua_lab.envs.lab.app_screen import AppScreen
from cua_lab.envs.lab.env import LabEnvironment
from cua_lab.play import worker
from cua_lab.play.episode import play

VICTIM: ContextVar[bool] = ContextVar("victim", default=False)
Patch = pytest.MonkeyPatch
Install = Callable[[Patch], None]


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    where: str
    name: str
    install: Install
    cause: str | None
    """What the failed episode says, a regular expression; `None`: the episode is none the worse."""
    limit_s: float = 600.0
    """Of the victim's time, or of its screen's answers: small where the fault is a silence."""


async def never(*args: Any, **options: Any) -> Any:
    await asyncio.Event().wait()


def raising(error: Callable[[], BaseException]) -> Callable[..., Any]:
    async def fail(*args: Any, **options: Any) -> Any:
        raise error()

    return fail


# ─── the victim, and a policy that always clicks ──────────────────────────


def choose_victim(
    patch: Patch, chosen: Callable[[str], bool], limit_s: float = 600.0, screen: bool = False
) -> None:
    """Mark the episodes whose id is `chosen`; only their limits are short."""

    async def marked(task: Any, config: Any, transport: Any, *, id: str, **options: Any) -> Any:
        if chosen(id):
            VICTIM.set(True)
            if screen:
                tool = replace(config.tool, screen_timeout_s=limit_s)
                config = config.model_copy(update={"tool": tool})
            else:
                options["timeout_s"] = limit_s
        else:
            VICTIM.set(False)
        return await play(task, config, transport, id=id, **options)

    patch.setattr(worker, "play", marked)


class Clicking(httpx.ASGITransport):
    """The engine's ids, and a click where a policy that had learnt would say one."""

    answer: Callable[[dict[str, Any]], Any] | None = None
    """What becomes of the victim's answer: another body, or a response."""
    before: Callable[..., Any] | None = None
    """Awaited in place of the victim's request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        victim, kind = VICTIM.get(), type(self)
        if victim and kind.before is not None:
            return await kind.before(request)
        response = await super().handle_async_request(request)
        body = json.loads(await response.aread())
        choice = body["choices"][0]
        ids = choice["response_token_ids"]
        at = {"action": "click", "x": sum(ids) % 997, "y": sum(ids) * 7 % 997}
        call = {"name": "computer", "arguments": json.dumps(at)}
        calls = [{"id": "c", "type": "function", "function": call}]
        choice["message"] = {"role": "assistant", "content": "", "tool_calls": calls}
        choice["finish_reason"] = "tool_calls"
        if victim and kind.answer is not None:
            body = kind.answer(body)
        if isinstance(body, httpx.Response):
            return body
        return httpx.Response(200, json=body) if isinstance(body, dict) else body


def over_the_wire(patch: Patch, kind: type[Clicking] = Clicking) -> None:
    """Let the embedded engine answer over HTTP, through this transport."""
    wired = functools.partialmethod(worker.Worker.__init__, wire=True)
    patch.setattr(worker.Worker, "__init__", wired)
    patch.setattr(worker.httpx, "ASGITransport", kind)


def answering(change: Callable[[dict[str, Any]], Any]) -> Install:
    kind = type("Changed", (Clicking,), {"answer": staticmethod(change)})
    return functools.partial(over_the_wire, kind=kind)


def asking(before: Callable[..., Any]) -> Install:
    kind = type("Broken", (Clicking,), {"before": staticmethod(before)})
    return functools.partial(over_the_wire, kind=kind)


def status(code: int, **options: Any) -> Install:
    return answering(lambda body: httpx.Response(code, **options))


def in_choice(**changes: Any) -> Install:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0].update(changes)
        return body

    return answering(change)


# ─── screens, graders, envs, tools ────────────────────────────────────────


def at_victim(owner: Any, name: str, fault: Callable[..., Any]) -> Install:
    """Call `fault` in place of a coroutine of the package, for the victim alone."""
    real = getattr(owner, name)

    @functools.wraps(real)
    async def patched(*args: Any, **options: Any) -> Any:
        return await (fault if VICTIM.get() else real)(*args, **options)

    return lambda patch: patch.setattr(owner, name, patched)


def on_screen(serve: Callable[[Any, Any], Any]) -> Install:
    """The victim's screen is a server that does this with each connection."""
    opened = AppScreen.open

    async def open_it(self: AppScreen) -> Any:
        capability = await opened(self)
        if not VICTIM.get():
            return capability

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (OSError, EOFError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        return replace(capability, url=f"rfb://127.0.0.1:{port}")

    return lambda patch: patch.setattr(AppScreen, "open", open_it)


async def hangs_up(reader: Any, writer: Any) -> None:
    return


async def greets_and_goes(reader: Any, writer: Any) -> None:
    writer.write(b"RFB 003.008\n")
    await writer.drain()


async def talks_http(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 99)
    await writer.drain()


async def says_nothing(reader: Any, writer: Any) -> None:
    while await reader.read(4096):
        pass


def shakes_hands(then: bytes, size: bytes = b"\0\x80\0\x80") -> Callable[..., Any]:
    """A proper handshake for a screen of this size; then these bytes, and silence."""

    async def serve(reader: Any, writer: Any) -> None:
        writer.write(b"RFB 003.008\n")
        await reader.readexactly(12)
        writer.write(b"\x01\x01")
        await reader.readexactly(1)
        writer.write(b"\0\0\0\0")
        await reader.readexactly(1)
        writer.write(
            size + b"\x20\x18\0\1\0\xff\0\xff\0\xff\x10\x08\0\0\0\0" + b"\0\0\0\4name" + then
        )
        await says_nothing(reader, writer)

    return serve


def grading(fault: Callable[[Any], Any]) -> Install:
    """The victim's template plays as always, and ends like this instead of with its grade."""
    real = LabEnvironment.targets_click

    @functools.wraps(real)
    async def template(self: LabEnvironment, **args: Any) -> Any:
        episode = real(self, **args)
        yield await episode.asend(None)
        grade = await episode.asend(None)
        if VICTIM.get():
            grade = fault(grade)
            if asyncio.iscoroutine(grade):
                grade = await grade
        if grade is not None:
            yield grade

    return lambda patch: patch.setattr(LabEnvironment, "targets_click", template)


def starting(fault: Callable[..., Any]) -> Install:
    real = LabEnvironment.targets_click

    @functools.wraps(real)
    async def template(self: LabEnvironment, **args: Any) -> Any:
        if VICTIM.get():
            await fault()
        episode = real(self, **args)
        yield await episode.asend(None)
        yield await episode.asend(None)

    return lambda patch: patch.setattr(LabEnvironment, "targets_click", template)


def graded_as(**changes: Any) -> Install:
    return grading(lambda grade: {**grade, **changes})


def raises(error: Exception) -> Any:
    def fail(*args: Any) -> Any:
        raise error

    return fail


TOOL = functools.partial(at_victim, ComputerTool, "_perform")
NAN = float("nan")
FAULTS = (
    Fault(
        "transport", "refused", asking(raising(lambda: httpx.ConnectError("no route"))), "no route"
    ),
    Fault("transport", "cut", asking(raising(lambda: httpx.ReadError("reset"))), "reset"),
    Fault("transport", "timed out", asking(raising(lambda: httpx.ReadTimeout("slow"))), "slow"),
    Fault("transport", "silent", asking(never), "timed out|timeout", limit_s=0.5),
    Fault("transport", "500", status(500, text="boom"), "status 500: boom"),
    Fault("transport", "400", status(400, json={"message": "too long"}), "status 400: too long"),
    Fault(
        "transport", "a page", status(200, html="<p>login</p>"), "not a JSON object|instead of JSON"
    ),
    Fault("transport", "half", status(200, content=b'{"choices": ['), "not a JSON object"),
    Fault("transport", "no choice", answering(lambda body: body | {"choices": []}), "choice"),
    Fault("transport", "no ids", answering(lambda b: {"choices": [{"message": {}}]}), "ids"),
    Fault("transport", "no token", in_choice(response_token_ids=[], meta_info=None), "token|ids"),
    Fault("rfb", "hangs up", on_screen(hangs_up), "no screen"),
    Fault("rfb", "greets and goes", on_screen(greets_and_goes), "no screen"),
    Fault("rfb", "no rfb", on_screen(talks_http), "no screen"),
    Fault("rfb", "silent", on_screen(says_nothing), "no screen", limit_s=0.5),
    Fault("rfb", "no frame", on_screen(shakes_hands(b"")), "no frame", limit_s=0.5),
    Fault("rfb", "garbage", on_screen(shakes_hands(b"\x77" * 99)), "no frame", limit_s=5.0),
    Fault("rfb", "huge", on_screen(shakes_hands(b"", b"\xff\xff\xff\xff")), "no screen.*65535"),
    Fault("grader", "raises", grading(raises(OSError("no game"))), "no game"),
    Fault("grader", "silent", grading(lambda grade: never()), "timed out|timeout", limit_s=0.5),
    Fault("grader", "no grade", grading(lambda grade: None), "without a grade"),
    Fault("grader", "NaN", graded_as(score=NAN), "nan|not graded"),
    Fault("grader", "1e308", graded_as(score=1e308), r"1e\+308"),
    Fault("grader", "text", graded_as(score="good"), "score|float|good"),
    Fault("grader", "success", graded_as(info={"success": "no"}), "success 'no'"),
    Fault(
        "env", "open", at_victim(AppScreen, "open", raising(lambda: OSError("no port"))), "no port"
    ),
    Fault(
        "env", "open hangs", at_victim(AppScreen, "open", never), "timed out|timeout", limit_s=0.5
    ),
    Fault("env", "start", starting(raising(lambda: ValueError("no level"))), "no level"),
    Fault("env", "start hangs", starting(never), "timed out|timeout", limit_s=0.5),
    Fault("env", "shutdown", at_victim(AppScreen, "close", raising(lambda: OSError("busy"))), None),
    Fault("env", "shutdown hangs", at_victim(AppScreen, "close", never), "", limit_s=2.0),
    Fault("tool", "dead", TOOL(raising(lambda: DeadScreen("the cable"))), "the cable"),
    Fault("tool", "bug", TOOL(raising(lambda: KeyError("bug"))), "bug"),
    Fault("tool", "memory", TOOL(raising(lambda: MemoryError())), "MemoryError"),
    Fault("tool", "cancelled", TOOL(raising(asyncio.CancelledError)), "cancelled from within"),
    Fault("tool", "silent", TOOL(never), "timed out|timeout", limit_s=0.5),
)
