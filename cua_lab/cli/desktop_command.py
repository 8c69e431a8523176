"""`cua-lab desktop`: one app on an RFB port, for any VNC viewer to look at."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.desktop.apps import Game2048, Targets, Todo
    from cua_lab.desktop.rfb import RFBServer


class AppName(StrEnum):
    """The apps of the lab."""

    game2048 = "game2048"
    targets = "targets"
    todo = "todo"


@app.command()
def desktop(
    name: Annotated[AppName, typer.Argument(metavar="APP", help="game2048, targets or todo.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 5900,
    seed: Annotated[int, typer.Option(help="The same seed shows the same screen.")] = 0,
    level: Annotated[int | None, typer.Option(help="targets: 1 red, 2 colour, 3 label.")] = None,
    near_win: Annotated[
        int | None, typer.Option(help="game2048: begin three merges away from this tile.")
    ] = None,
    width: Annotated[int, typer.Option(help="Screen width in pixels.")] = 640,
    height: Annotated[int, typer.Option(help="Screen height in pixels.")] = 600,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the VNC password.")
    ] = None,
) -> None:
    """Show an app on an RFB port, until Ctrl-C."""
    import asyncio

    from cua_lab.desktop.rfb import RFBServer

    shown = _build(name, seed, level, near_win, width, height)
    server = RFBServer(
        shown,
        host=host,
        port=port,
        password_file=password_file,
        name=f"cua-lab {name.value}",
        zlib_level=1,  # the viewer may sit behind an SSH tunnel
    )
    asyncio.run(_serve(server))
    typer.echo(f"\nstopped; the app's state was\n{_json(shown.state())}")


def _build(
    name: AppName, seed: int, level: int | None, near_win: int | None, width: int, height: int
) -> Game2048 | Targets | Todo:
    from cua_lab.desktop.apps import Game2048, Targets, Todo

    if level is not None and name is not AppName.targets:
        raise LabError(f"--level belongs to targets; {name.value} has no levels")
    if near_win is not None and name is not AppName.game2048:
        raise LabError(f"--near-win belongs to game2048; got it with {name.value}")
    if name is AppName.game2048:
        return Game2048(width, height, near_win=near_win, seed=seed)
    if name is AppName.todo:
        return Todo(width, height, seed=seed)
    targets = Targets(1 if level is None else level, width=width, height=height, seed=seed)
    typer.echo(f"task: {targets.instruction}")
    return targets


async def _serve(server: RFBServer) -> None:
    import asyncio
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with server:
        width, height = server.size
        typer.echo(f"{server.url} shows {server.name} ({width}x{height})")
        typer.echo(f"look: vncviewer {server.host}::{server.port} (any VNC viewer); stop: Ctrl-C")
        await stop.wait()


def _json(state: dict[str, Any]) -> str:
    import json

    return json.dumps(state, ensure_ascii=False)
