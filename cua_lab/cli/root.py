"""The Typer app on which every command registers itself."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cua_lab import __version__

app = typer.Typer(
    name="cua-lab",
    help="A lab in which a vision-language model learns to drive a real screen.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

FIRST = """\
cua-lab: a lab in which a vision-language model learns to drive a real screen.

Three things to do first:
  cua-lab doctor         is this machine ready? says how to fix what is not
  cua-lab smoke          the whole path with tiny numbers, under a minute; leaves runs/smoke
  make lab               the lessons, in your browser; begin with 00_start_here

Then: cua-lab recipes lists what can be run, cua-lab --help every command."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cua-lab {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """A lab in which a vision-language model learns to drive a real screen."""
    if os.environ.get("NO_COLOR"):
        context.color = False  # for all that the commands print; no-color.org
    if context.invoked_subcommand is None:
        typer.echo(FIRST)
