"""`cua-lab audit verify`: whether anybody changed a log of the gate, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

audit_app = typer.Typer(no_args_is_help=True, help="Logs of the gate's decisions.")
app.add_typer(audit_app, name="audit")


@audit_app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="A log, such as eval/audit.jsonl.")],
) -> None:
    """Walk along the chain of hashes; exit status 1 where it is broken."""
    from cua_lab.safety.audit import head_of
    from cua_lab.safety.audit import verify as verify_chain

    if not path.is_file() and not head_of(path).is_file():
        raise LabError(f"there is no log {path}; the gate of eval writes eval/audit.jsonl")
    chain = verify_chain(path)
    if chain.broken is None:
        typer.echo(f"{path}: {chain.lines} lines, whole; the last hash is {chain.last}")
        return
    typer.echo(f"{path}: broken after {chain.lines} whole lines: {chain.broken}")
    raise typer.Exit(1)
