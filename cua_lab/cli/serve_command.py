"""`cua-lab serve`: a checkpoint behind sglang's chat completions, on this machine."""

from __future__ import annotations

import contextlib
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.app import app
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


@app.command()
def serve(
    model: Annotated[
        Path, typer.Option(help="Checkpoint folder: any Qwen3-VL or Qwen2.5-VL, or a run's own.")
    ],
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="Flags of vllm or sglang, after --, which win over those set here."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="vllm and sglang run in environments of their own.")
    ] = EngineName.embedded,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on; 0 takes a free one.",
            show_default="embedded 30000, vllm 30001, sglang 30002",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option(help="Allow an address that others can reach: there is no password.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="What requests call the model.", show_default="the folder's name"),
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Prompt and output together; default: the model's own.")
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Outputs decoded together.", show_default="64, or the engine's"),
    ] = None,
    cache_mib: Annotated[
        int | None,
        typer.Option(help="Memory for prefixes of conversations; embedded.", show_default="256"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of requests that bring no seed.", show_default="0, or the engine's"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of the model.", show_default="1, or the engine's"),
    ] = None,
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that new weights may be loaded from while it runs; may be given again.",
            show_default="only --model itself",
        ),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Requests in work at once; more get 503 and retry-after; embedded.",
            show_default="128",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name of this machine that requests may use; addresses always may."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Web page that may ask, as http://NAME:PORT; default: none."),
    ] = None,
) -> None:
    """Serve a policy over HTTP until Ctrl-C: the embedded engine speaks sglang's dialect.

    Chat completions with "stream": true come as server-sent events, without token ids. What a
    request leaves unsaid is neutral: the checkpoint's generation_config is not applied.
    """
    if host not in LOOPBACK and not expose:
        raise LabError(
            f"{host} is open to other machines, and the engine has no password; listen on"
            " 127.0.0.1, or add --expose if you mean it"
        )
    port = PORTS[engine] if port is None else port
    check_port(port)
    if engine is EngineName.embedded:
        if flags:
            raise LabError(f"the embedded engine takes no flags of its own; got {' '.join(flags)}")
        from cua_lab.serving.access import Access

        access = Access(
            hosts=frozenset(allowed.lower() for allowed in allow_host or ()),
            origins=frozenset(allow_origin or ()),
            weights=(model, *(weights or ())),
            max_open=max_requests or 128,
            off_loop=True,
        )
        _serve_embedded(
            model,
            host,
            port,
            name,
            access,
            context_length=context_length,
            max_batch=max_batch or 64,
            cache_mib=256 if cache_mib is None else cache_mib,
            seed=seed or 0,
            threads=threads or 1,
        )
        return
    for option, given in (("--cache-mib", cache_mib), ("--max-requests", max_requests)):
        if given is not None:
            raise LabError(
                f"{option} is the embedded engine's; give {engine.value} its own flag after --"
            )
    _serve_real(
        engine.value,
        model,
        host,
        port=port,
        name=name,
        context_length=context_length,
        max_batch=max_batch,
        seed=seed,
        threads=threads,
        arguments=tuple(flags or ()),
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


def _serve_real(engine: str, model: Path, host: str, **options: Any) -> None:
    """A real engine in a process of its own, until Ctrl-C."""
    from cua_lab.serving.launch import KINDS, launched

    # A plain SIGTERM or a closed terminal would end this process at once and leave the engine
    # behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if host != "127.0.0.1":
        raise LabError(f"{engine} is started on 127.0.0.1 only; got --host {host}")
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
