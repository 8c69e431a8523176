"""`cua-lab report`: a run's folder as one page that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, e.g. runs/laptop.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page; RUN/report.html by default.")
    ] = None,
) -> None:
    """Write report.html for a run, finished or still going."""
    from cua_lab.viz.report import write_report

    typer.echo(f"wrote {write_report(run, out)}")
