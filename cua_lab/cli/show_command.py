"""`cua-lab show`: episodes of a run on a page, screenshot by screenshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run, e.g. runs/laptop.")],
    episode: Annotated[
        str | None, typer.Option(help="One episode by its name in episodes.jsonl.")
    ] = None,
    failures: Annotated[
        bool, typer.Option("--failures", help="Those that failed, then those that missed.")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="Those of the highest reward, of each task.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page; RUN/show.html by default.")
    ] = None,
) -> None:
    """Write a page with episodes of a run: what it saw, thought and called, and what it earned.

    Without an option: those whose screenshots were kept, before and after GRPO.
    """
    from cua_lab.viz.page import write_page
    from cua_lab.viz.runfiles import read_run
    from cua_lab.viz.show_run import choose, show_page

    if sum([episode is not None, failures, best]) > 1:
        raise LabError("give one of --episode, --failures and --best")
    found = read_run(run)
    rows = choose(found, episode=episode, failures=failures, best=best)
    what = episode or ("Failures" if failures else "The best episodes" if best else "Episodes")
    path = write_page(out or run / "show.html", show_page(found, rows, what))
    typer.echo(f"wrote {path}: {len(rows)} episode{'s' * (len(rows) != 1)}")
