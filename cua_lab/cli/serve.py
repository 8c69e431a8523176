"""`cua-lab serve`: a checkpoint behind sglang's chat completions, on this machine."""

import contextlib
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from cua_lab.cli import app
from cua_lab.errors import LabError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command()
def serve(
    model: Annotated[
        Path, typer.Option(help="Checkpoint folder: any Qwen3-VL or Qwen2.5-VL, or a run's own.")
    ],
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
) -> None:
    """Serve a policy over HTTP, in sglang's dialect, until Ctrl-C."""
    if host not in LOOPBACK and not expose:
        raise LabError(
            f"{host} is open to other machines, and the engine has no password; listen on"
            " 127.0.0.1, or add --expose if you mean it"
        )
    from cua_lab.policy.policy import load_policy
    from cua_lab.serving.engine import Engine
    from cua_lab.serving.server import create_app

    policy = load_policy(model)
    engine = Engine(
        policy,
        context_length=context_length,
        max_batch=max_batch,
        cache_mib=cache_mib,
        seed=seed,
        threads=threads,
    )
    typer.echo(
        f"{policy.name}: {policy.parameters / 1e6:.1f} M parameters, {policy.family},"
        f" context {engine.context_length}"
    )
    try:
        _run(create_app(engine), host, port)
    finally:
        engine.close()
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
