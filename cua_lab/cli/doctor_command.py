"""`cua-lab doctor`."""

from __future__ import annotations

import typer

from cua_lab.cli.checks_table import show_checks
from cua_lab.cli.root import app


@app.command()
def doctor() -> None:
    """Check this machine and say how to fix what is missing."""
    from cua_lab.desktop.trial import boot_once
    from cua_lab.doctor import examine

    failed = show_checks(examine(boot=boot_once))
    if failed:
        typer.secho(f"not ready: {', '.join(failed)}", fg="red")
        raise typer.Exit(1)
    typer.secho(
        "ready: `cua-lab smoke` takes under a minute, `make run` about six",
        fg="green",
    )
