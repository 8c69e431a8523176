"""`cua-lab serve`: a checkpoint behind sglang's chat completions, on this machine."""

import contextlib
import signal
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cua_lab.cli import app
from cua_lab.errors import LabError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class EngineName(StrEnum):
    """Who serves."""

    embedded = "embedded"
    vllm = "vllm"
    sglang = "sglang"


@app.command()
def serve(
    model: Annotated[
        Path, typer.Option(help="Checkpoint folder: any Qwen3-VL or Qwen2.5-VL, or a run's own.")
    ],
    engine: Annotated[
        EngineName, typer.Option(help="vllm and sglang run in environments of their own.")
    ] = EngineName.embedded,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 30000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option(help="Allow an address that others can reach: there is no password.")
    ] = False,
    context_length: Annotated[
        int | None, typer.Option(help="Prompt and output together; default: the model's own.")
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Outputs decoded together.")] = 64,
    cache_mib: Annotated[int, typer.Option(help="Memory for prefixes of conversations.")] = 256,
    seed: Annotated[int, typer.Option(help="Of requests that bring no seed.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads of the model.")] = 1,
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that new weights may be loaded from while it runs; may be given again.",
            show_default="only --model itself",
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
    if engine is not EngineName.embedded:
        _serve_real(engine.value, model, host, port, context_length)
        return
    from cua_lab.engine.engine import Engine
    from cua_lab.policy.policy import load_policy
    from cua_lab.serving.access import Access
    from cua_lab.serving.sampling_request import unapplied
    from cua_lab.serving.server import create_app

    access = Access(
        hosts=frozenset(name.lower() for name in allow_host or ()),
        origins=frozenset(allow_origin or ()),
        weights=(model, *(weights or ())),
        off_loop=True,
    )

    policy = load_policy(model)
    embedded = Engine(
        policy,
        context_length=context_length,
        max_batch=max_batch,
        cache_mib=cache_mib,
        seed=seed,
        threads=threads,
    )
    typer.echo(
        f"{policy.name}: {policy.parameters / 1e6:.1f} M parameters, {policy.family},"
        f" context {embedded.context_length}"
    )
    if ignored := unapplied(policy.model.generation_config):
        shown = ", ".join(f"{name} {value}" for name, value in ignored.items())
        typer.echo(f"the checkpoint's generation_config is not applied: {shown}")
    try:
        _run(create_app(embedded, access=access), host, port)
    finally:
        embedded.close()
    typer.echo("stopped")


def _serve_real(name: str, model: Path, host: str, port: int, context_length: int | None) -> None:
    """A real engine in a process of its own, until Ctrl-C."""
    from cua_lab.serving.launch import KINDS, launched

    # A plain SIGTERM would end this process at once and leave the engine behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if host != "127.0.0.1":
        raise LabError(f"{name} is started on 127.0.0.1 only; got --host {host}")
    with (
        contextlib.suppress(KeyboardInterrupt),
        launched(
            KINDS[name], model, port=port, context_length=context_length, say=typer.echo
        ) as running,
    ):
        typer.echo("stop: Ctrl-C")
        status = running.process.wait()
        raise LabError(f"{name} ended by itself with status {status}:\n{running.tail()}")
    typer.echo("stopped")


def _run(server_app: Any, host: str, port: int) -> None:
    """uvicorn until a signal; the address is printed once it answers."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list | None = None) -> None:
            await super().startup(sockets)
            typer.echo(f"serving at {url}/v1 (stop: Ctrl-C)")

    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    config = uvicorn.Config(server_app, log_level="warning", timeout_graceful_shutdown=2)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again once it has stopped
        Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise LabError(
            f"cannot listen on {host}:{port} ({error}); choose another port, or --port 0 for a"
            " free one"
        ) from error
    return listening
