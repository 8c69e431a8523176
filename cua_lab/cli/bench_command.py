"""`cua-lab bench`: how fast the lab's own parts are on this machine, each beside a named peer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app


@app.command()
def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Of screenshot, settle, shim, stitch, prefill, decode, episode, sft, grpo,"
            " rollout, run, viewer; `all` is every one of them, at 5 rounds about 6 minutes.",
            show_default="all but settle, which needs a browser, and run, which takes minutes",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each side takes its turn.")] = 9,
    out: Annotated[
        Path | None, typer.Option(help="Also write FILE.json, and FILE.md with the tables.")
    ] = None,
) -> None:
    """Parts of the lab beside named peers, taking turns in one process.

    TRL's losses join sft and grpo where TRL is installed: pip install -e '.[bench]'.
    """
    from cua_lab.bench.comparison import compare, write_comparison

    found = compare(parts, rounds=rounds)
    typer.echo(found.markdown())
    if out is not None:
        for file in write_comparison(found, out):
            typer.echo(f"wrote {file}")
