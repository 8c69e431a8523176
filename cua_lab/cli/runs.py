"""What the commands that run for minutes share: where runs lie, and how they are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from cua_lab.run.folder import check_name

RUNS = Path("runs")
"""Below the folder that the command is started in."""


def run_path(name: str | None, recipe: str) -> Path:
    """The folder of a run: by its own name, or its recipe's."""
    return RUNS / check_name(Path(recipe).stem if name is None else name)


@contextmanager
def stoppable(path: Path, go_on: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM, which is what `kill` and schedulers send, end a run in good order."""
    ended: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        ended.append(number)
        signal.raise_signal(signal.SIGINT)  # for the handler of Ctrl-C that is set now

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if in_main else None
    if in_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # `cmd &` in a script starts a program that ignores Ctrl-C, and SIGTERM would do nothing.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.secho(f"\nstopped; {path} keeps what is done", fg="yellow", err=True)
        typer.echo(f"go on with: {go_on}")
        raise typer.Exit(128 + (ended[0] if ended else signal.SIGINT)) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)
