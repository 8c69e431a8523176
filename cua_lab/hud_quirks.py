"""Where HUD and the libraries under it behave otherwise than their signatures say.

Each function here is one measured quirk of HUD 0.6.21 or of asyncio beside it, with a test that
fails when the quirk is gone or has moved. Every private name of HUD's that this package calls is
called here and nowhere else.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
from typing import TYPE_CHECKING, Any

from hud.environment import server as hud_server
from hud.environment.server import TaskRunner
from hud.eval.runtime import local as hud_local
from hud.settings import settings
from hud.types import Step
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from hud.capabilities import RFBClient
    from hud.environment import Environment
    from hud.eval import Task


def forget_hud_account() -> None:
    """Keep HUD off the network and off the disk.

    A stray key (environment, .env, ~/.hud/.env) made one offline episode take 185 s; with telemetry
    switched off HUD writes every screenshot to ~/.hud/spans. Without a key and with the switch on
    it does neither.
    """
    settings.api_key = None
    settings.telemetry_enabled = True
    Step.emit = _emit_if_heard  # type: ignore[assignment, method-assign]


KEYS = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)AUTH", re.I)
"""Names of variables that hold a credential or lead to one (SSH_AUTH_SOCK)."""
_exec = hud_local.create_process_group_exec  # type: ignore[attr-defined]


def keep_keys_from_children() -> None:
    """Start the env servers of `SubprocessRuntime` without this process's credentials. HUD hands
    the whole environment on, and an env, with every app and browser that it starts, could read
    it."""
    hud_local.create_process_group_exec = _exec_without_keys  # type: ignore[attr-defined]


async def _exec_without_keys(*command: str, **options: Any) -> Any:
    kept = {name: value for name, value in os.environ.items() if not KEYS.search(name)}
    return await _exec(*command, **{"env": kept, **options})


_emit = Step.emit


def _emit_if_heard(step: Step, *, trace_id: str | None = None) -> None:
    """HUD serialises every step, screenshots and all, and then throws it away when nobody listens:
    1 ms of an episode of 7."""
    if settings.api_key or settings.span_dir:
        _emit(step, trace_id=trace_id)


def silence_cancelled_streams(loop: asyncio.AbstractEventLoop) -> None:
    """Drop the CancelledError tracebacks that Python 3.11's stream callbacks print for each tunnel
    that HUD closes. Idempotent; a handler that was there before still gets everything else."""
    previous = loop.get_exception_handler()
    if getattr(previous, "drops_cancelled", False):
        return

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), asyncio.CancelledError):
            return
        if previous is None:
            loop.default_exception_handler(context)
        else:
            previous(loop, context)

    handler.drops_cancelled = True  # type: ignore[attr-defined]
    loop.set_exception_handler(handler)


async def reconnect(client: RFBClient) -> None:
    """Dial the screen anew. HUD does so on its own for a closed socket only, never for one that
    stays open and says nothing."""
    await client._reconnect()


def env_of(task: Task) -> Environment | None:
    """The env object whose template minted this task; `None` for a `Task(...)` built by hand.

    A task knows its env by name only; the object, which alone can check arguments, is private.
    """
    return task._env


def task_without_args(env: Environment, template: str) -> Task:
    """A task of a template whose arguments all come from elsewhere; HUD's own call asks for those
    that have no default."""
    from hud.eval import Task

    task = Task(env=env.name, id=template, args={}, slug=template)
    task._env = env
    return task


def template_parameters(env: Environment, template: str) -> dict[str, inspect.Parameter]:
    """The arguments of an env's template, by name; raises `KeyError` for an unknown template."""
    return dict(env.templates[template].sig.parameters)


class _Graded:
    """A task's generator that must yield a grade."""

    def __init__(self, generator: Any, task: str) -> None:
        self._generator, self._task = generator, task

    async def asend(self, value: Any) -> Any:
        try:
            return await self._generator.asend(value)
        except StopAsyncIteration:
            raise RuntimeError(
                f"task {self._task!r} ended without a grade; yield a number or a dict with a"
                " 'score' after the prompt"
            ) from None

    async def aclose(self) -> None:
        await self._generator.aclose()


def refuse_missing_grades() -> None:
    """Let every env of this process raise where its task yields no grade. Idempotent.

    HUD's `TaskRunner.grade` answers 0.0 where a template's generator ends after its prompt (hud
    0.6.21, `environment/server.py`); on the wire that cannot be told from a grade of 0.0. An env in
    a process or container of its own runs HUD's code, and keeps doing so.
    """
    grade = TaskRunner.grade
    if getattr(grade, "refuses_missing", False):
        return

    async def graded(self: Any, payload: dict[str, Any]) -> dict[str, Any]:
        if self._gen is not None:
            self._gen = _Graded(self._gen, self.task.id)
        return await grade(self, payload)

    graded.refuses_missing = True  # type: ignore[attr-defined]
    TaskRunner.grade = graded  # type: ignore[method-assign]


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def keep_type_adapters() -> None:
    """Let the envs of this process make one pydantic adapter for each type of an argument, and not
    one for each argument of each episode (0.05 ms; an episode of the lab has seven). Idempotent."""
    hud_server.TypeAdapter = _kept_adapter  # type: ignore[attr-defined, assignment]


def _kept_adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return _adapter(annotation)
    except TypeError:  # a type without a hash
        return TypeAdapter(annotation)
