"""`cua-lab serve`: a checkpoint behind sglang's chat completions, on this machine."""

from __future__ import annotations

import contextlib
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError
from cua_lab.serving.loopback import check_port, claim

if TYPE_CHECKING:
    from cua_lab.serving.access import Access

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class EngineName(StrEnum):
    """Who serves."""

    embedded = "embedded"
    vllm = "vllm"
    sglang = "sglang"


PORTS = {EngineName.embedded: 30000, EngineName.vllm: 30001, EngineName.sglang: 30002}
"""One each, so that two engines on one machine are never mistaken for each other."""


Model = Annotated[
    Path, typer.Option(help="Checkpoint folder: any Qwen3-VL or Qwen2.5-VL, or a run's own.")
]
Flags = Annotated[
    list[str] | None,
    typer.Argument(help="Flags of vllm or sglang, after --, which win over those set here."),
]
Kind = Annotated[EngineName, typer.Option(help="vllm and sglang run in environments of their own.")]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port to listen on; 0 takes a free one.",
        show_default="embedded 30000, vllm 30001, sglang 30002",
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Expose = Annotated[
    bool, typer.Option(help="Allow an address that others can reach: there is no password.")
]
Name = Annotated[
    str | None, typer.Option(help="What requests call the model.", show_default="the folder's name")
]
ContextLength = Annotated[
    int | None, typer.Option(help="Prompt and output together; default: the model's own.")
]
MaxBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Outputs decoded together.", show_default="64, or the engine's"),
]
CacheMib = Annotated[
    int | None,
    typer.Option(help="Memory for prefixes of conversations; embedded.", show_default="256"),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Of requests that bring no seed.", show_default="0, or the engine's"),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads of the model.", show_default="1, or the engine's"),
]
Weights = Annotated[
    list[Path] | None,
    typer.Option(
        help="Folder that new weights may be loaded from while it runs; may be given again.",
        show_default="only --model itself",
    ),
]
MaxRequests = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Requests in work at once; more get 503 and retry-after; embedded.",
        show_default="128",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Name of this machine that requests may use; addresses always may."),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(help="Web page that may ask, as http://NAME:PORT; default: none."),
]


@app.command()
def serve(
    model: Model,
    flags: Flags = None,
    engine: Kind = EngineName.embedded,
    port: Port = None,
    host: Host = "127.0.0.1",
    expose: Expose = False,
    name: Name = None,
    context_length: ContextLength = None,
    max_batch: MaxBatch = None,
    cache_mib: CacheMib = None,
    seed: Seed = None,
    threads: Threads = None,
    weights: Weights = None,
    max_requests: MaxRequests = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
) -> None:
    """Serve a policy over HTTP until Ctrl-C: the embedded engine speaks sglang's dialect.

    Chat completions with "stream": true come as server-sent events, without token ids. What a
    request leaves unsaid is neutral: the checkpoint's generation_config is not applied.
    """
    port = PORTS[engine] if port is None else port
    _check_address(engine, host, port, expose)
    settings = {"context_length": context_length, "seed": seed, "threads": threads}
    settings["max_batch"] = max_batch
    if engine is EngineName.embedded:
        if flags:
            raise LabError(f"the embedded engine takes no flags of its own; got {' '.join(flags)}")
        access = _access(allow_host, allow_origin, (model, *(weights or ())), max_requests or 128)
        usual = {"max_batch": 64, "seed": 0, "threads": 1, "cache_mib": 256}
        said = {n: v for n, v in (settings | {"cache_mib": cache_mib}).items() if v is not None}
        _serve_embedded(model, host, port, name, access, **(usual | said))
        return
    for option, given in (("--cache-mib", cache_mib), ("--max-requests", max_requests)):
        if given is not None:
            raise LabError(
                f"{option} is the embedded engine's; give {engine.value} its own flag after --"
            )
    arguments = tuple(flags or ())
    _serve_real(engine.value, model, port=port, name=name, arguments=arguments, **settings)


def _check_address(engine: EngineName, host: str, port: int, expose: bool) -> None:
    if host not in LOOPBACK and not expose:
        raise LabError(
            f"{host} is open to other machines, and the engine has no password; listen on"
            " 127.0.0.1, or add --expose if you mean it"
        )
    check_port(port)
    if engine is not EngineName.embedded and host != "127.0.0.1":
        raise LabError(f"{engine.value} is started on 127.0.0.1 only; got --host {host}")


def _access(
    hosts: list[str] | None,
    origins: list[str] | None,
    weights: tuple[Path, ...],
    max_open: int,
) -> Access:
    from cua_lab.serving.access import Access

    return Access(
        hosts=frozenset(host.lower() for host in hosts or ()),
        origins=frozenset(origins or ()),
        weights=weights,
        max_open=max_open,
        off_loop=True,
    )


def _serve_embedded(
    model: Path, host: str, port: int, name: str | None, access: Access, **settings: Any
) -> None:
    from cua_lab.engine.engine import Engine
    from cua_lab.policy.policy import load_policy
    from cua_lab.serving.sampling_request import unapplied
    from cua_lab.serving.server import create_app

    policy = load_policy(model)
    name = name or policy.name
    embedded = Engine(policy, **settings)
    typer.echo(
        f"{name}: {policy.parameters / 1e6:.1f} M parameters, {policy.family},"
        f" context {embedded.context_length}"
    )
    if ignored := unapplied(policy.model.generation_config):
        shown = ", ".join(f"{name} {value}" for name, value in ignored.items())
        typer.echo(f"the checkpoint's generation_config is not applied: {shown}")
    try:
        _run(create_app(embedded, model_name=name, access=access), name, host, port)
    finally:
        embedded.close()
    typer.echo("stopped")


def _serve_real(engine: str, model: Path, **options: Any) -> None:
    """A real engine in a process of its own, until Ctrl-C."""
    from cua_lab.serving.launch import KINDS, launched

    # A plain SIGTERM or a closed terminal would end this process at once and leave the engine
    # behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        launched(KINDS[engine], model, say=typer.echo, **options) as running,
    ):
        typer.echo("stop: Ctrl-C")
        status = running.process.wait()
        raise LabError(f"{engine} ended by itself with status {status}:\n{running.tail()}")
    typer.echo("stopped")


def _run(server_app: Any, name: str, host: str, port: int) -> None:
    """uvicorn until a signal; the address is printed once it answers."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[Any] | None = None) -> None:
            await super().startup(sockets)
            typer.echo(f"serving at {url}/v1 as {name!r} (stop: Ctrl-C)")

    listening = claim(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    config = uvicorn.Config(server_app, log_level="warning", timeout_graceful_shutdown=2)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again once it has stopped
        Server(config).run(sockets=[listening])
