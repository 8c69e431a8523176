"""Envs that are served elsewhere: what a HUD control channel says of itself, as an `Environment`.

    tcp://host:port | docker://image ──hello, tasks.list──▶ name, templates with their arguments

A server publishes for each template its arguments as a JSON schema; made into signatures again,
rows for it are minted and checked like those of a folder. Invariant: nothing is played and no
state is changed by looking; the container that was started for it is gone afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cua_lab.errors import LabError

if TYPE_CHECKING:
    from hud.environment import Environment

TCP, DOCKER = "tcp://", "docker://"
ANSWERS_WITHIN_S = 20.0
"""Of a server that runs already; a container is waited for as HUD does."""
TYPES: dict[str, type] = {
    "integer": int,
    "number": float,
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}
"""JSON schema's simple types as annotations; anything else takes any value."""


def is_served(source: str) -> bool:
    """Whether a package is an address or an image, and no code that could be imported here."""
    return source.startswith((TCP, DOCKER))


@dataclass(frozen=True, slots=True)
class ServedName:
    """A checked `tcp://host:port` or `docker://image`."""

    source: str

    def __post_init__(self) -> None:
        if self.source.startswith(TCP):
            try:
                whole = bool(urlsplit(self.source).hostname) and bool(urlsplit(self.source).port)
            except ValueError:
                whole = False
            if not whole:
                raise LabError(f"{self.source!r} is no address of an env: give tcp://HOST:PORT")
        elif not self.source.removeprefix(DOCKER):
            raise LabError("docker:// names no image: give docker://IMAGE or docker://IMAGE:TAG")

    @property
    def image(self) -> str | None:
        """Of a `docker://`; `None` for a server that runs already."""
        return self.source.removeprefix(DOCKER) if self.source.startswith(DOCKER) else None

    def provider(self) -> Any:
        """The HUD runtime that plays on it."""
        from hud.eval import DockerRuntime, Runtime

        return Runtime(self.source) if self.image is None else DockerRuntime(self.image)


def served_environment(name: ServedName) -> Environment:
    """Ask the server what it is; raises `LabError` where nobody answers as HUD's servers do."""
    # Callers may be inside an event loop, which cannot wait for itself.
    with ThreadPoolExecutor(1) as pool:
        title, entries = pool.submit(lambda: asyncio.run(_ask(name))).result()
    return environment_of(title, entries)


def environment_of(title: str, entries: list[dict[str, Any]]) -> Environment:
    """An `Environment` with these templates (`tasks.list`); it makes rows and plays nothing."""
    from hud.environment import Environment

    env = Environment(title)
    for entry in entries:
        template = env.template(id=entry["id"], description=entry.get("description") or "")
        template(_with_signature(title, entry.get("args") or {}))
    return env


async def _ask(name: ServedName) -> tuple[str, list[dict[str, Any]]]:
    from hud.clients.client import connect
    from hud.eval import Task

    limit = ANSWERS_WITHIN_S if name.image is None else 600.0
    try:
        async with (
            asyncio.timeout(limit),
            name.provider()(Task(env="?", id="?")) as runtime,
            connect(runtime, ready_timeout=limit / 2) as client,
        ):
            assert client.manifest is not None
            return client.manifest.server_info.name, await client.list_tasks()
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise LabError(
            f"no HUD v6 env answers at {name.source} ({words}); serve one with"
            " `python -m hud.environment.server FOLDER --port PORT`"
        ) from error


def _with_signature(title: str, schema: Mapping[str, Any]) -> Callable[..., Any]:
    async def elsewhere(**_: Any) -> AsyncGenerator[Any, Any]:
        raise LabError(f"the env {title!r} is served elsewhere; play it through its runtime")
        yield  # a template is a generator

    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=TYPES.get(described.get("type"), Any),
            # `None` says that there is a default, which not every schema tells.
            default=inspect.Parameter.empty if name in required else described.get("default"),
        )
        for name, described in properties.items()
    ]
    return _signed(elsewhere, inspect.Signature(parameters))


def _signed(function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """With this signature, as `inspect` and so HUD read it."""
    vars(function)["__signature__"] = signature
    return function
