"""`cua-lab data ...`: task rows and demonstrations. `data_app` takes one command per verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

data_app = typer.Typer(no_args_is_help=True, help="Task rows and data for training.")
app.add_typer(data_app, name="data")


@data_app.command()
def mint(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    package: Annotated[
        str, typer.Option(help="HUD env package: a dotted name or a directory.")
    ] = "cua_lab.envs.lab",
    slug: Annotated[
        list[str] | None, typer.Option(help="Only this task; may be given several times.")
    ] = None,
    args: Annotated[str, typer.Option(help="JSON object that overrides task arguments.")] = "{}",
    seeds: Annotated[
        str | None, typer.Option(help="START:STOP, one group per seed in this range.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Rows per group: the members of a GRPO group.")] = 1,
) -> None:
    """Write prompt rows for the tasks of an env package."""
    from cua_lab.tasks import mint as mint_rows
    from cua_lab.tasks import parse_args, write_rows

    if out.suffix != ".jsonl" and not out.is_char_device() and not out.is_fifo():
        raise LabError(
            f"{out} should be the file to write, such as {out.stem or 'rows'}.jsonl; which tasks go"
            " into it is said by --package, --slug and --args"
        )
    rows = mint_rows(
        package, slugs=slug, args=parse_args(args), seeds=_seed_range(seeds), repeat=repeat
    )
    count = write_rows(rows, out)
    typer.echo(f"wrote {count} rows ({count // repeat} groups of {repeat}) to {out}")


@data_app.command()
def tasks(
    package: Annotated[
        str, typer.Option(help="HUD env package: a dotted name or a directory.")
    ] = "cua_lab.envs.lab",
) -> None:
    """List the tasks of an env package with their arguments."""
    import json

    from cua_lab.tasks import load_tasks

    for task in load_tasks(package):
        typer.echo(f"{task.slug}\t{task.id}\t{json.dumps(task.args)}")


def _seed_range(text: str | None) -> range | None:
    if text is None:
        return None
    try:
        start, stop = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise LabError(f"--seeds takes START:STOP, such as 0:64; got {text!r}") from error
    return range(start, stop)
