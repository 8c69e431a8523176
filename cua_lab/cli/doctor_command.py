"""`cua-lab doctor`."""

from __future__ import annotations

import typer

from cua_lab.cli.root import app

COLOUR = {"ok": "green", "warn": "yellow", "fail": "red", "optional": "cyan"}


@app.command()
def doctor() -> None:
    """Check this machine and say how to fix what is missing."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from cua_lab.desktop.trial import boot_once
    from cua_lab.doctor import examine

    checks = examine(boot=boot_once)
    table = Table(box=None, pad_edge=False)
    for column in ("", "check", "saw", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = f"[{COLOUR[check.status]}]{check.status}[/]"
        table.add_row(mark, check.name, escape(check.saw), escape(check.fix))
    Console().print(table)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        typer.secho(f"not ready: {', '.join(failed)}", fg="red")
        raise typer.Exit(1)
    typer.secho(
        "ready: `cua-lab smoke` takes under a minute, `make run` about six",
        fg="green",
    )
