"""`cua-lab`: one file per command group, heavy imports inside the commands."""

import os
import sys

import typer

from cua_lab.errors import LabError

app = typer.Typer(
    name="cua-lab",
    help="A lab in which a vision-language model learns to drive a real screen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """A lab in which a vision-language model learns to drive a real screen."""


def main() -> None:
    """Run the CLI; a `LabError` becomes one clear line and exit status 2."""
    # Before torch is imported: two threads are 1.55x as fast when idle, 10x slower when not.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from cua_lab.cli import commands  # noqa: F401  (registers the commands)

    try:
        app()
    except LabError as error:
        typer.secho(f"cua-lab: {error}", fg="red", err=True)
        sys.exit(2)
