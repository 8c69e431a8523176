"""`cua-lab miles`: the same tasks and numbers on a cluster, under Miles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.checks_table import show_checks
from cua_lab.cli.root import app


@app.command()
def miles(
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- MILES' OWN FLAGS]", help="Passed on to Miles as they are."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe file; the published one without it.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder of the model.")] = None,
    data: Annotated[Path | None, typer.Option(help="JSONL of task rows.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints and dumps; must outlive the node.")
    ] = None,
    sources: Annotated[
        Path | None, typer.Option("--miles", help="Miles' sources, the folder with train.py.")
    ] = None,
    mode: Annotated[str, typer.Option(help="normal, rollout-only or smoke.")] = "normal",
    dry_run: Annotated[
        bool, typer.Option(help="Check and print the command; run nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")
    ] = False,
    costs: Annotated[bool, typer.Option(help="Print what the numbers cost, and stop.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a number: train.lr=2e-6", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Check this node, print Miles' command, and start it."""
    from cua_lab.miles import launcher
    from cua_lab.miles.recipe import PUBLISHED, load_miles_recipe

    paths = {"model.path": model, "tasks.data": data}
    paths |= {"cluster.output": output, "cluster.miles": sources}
    given = [f"{key}={path.resolve()}" for key, path in paths.items() if path is not None]
    loaded = load_miles_recipe(recipe or PUBLISHED, [*(overrides or []), *given])
    sized = launcher.for_mode(loaded, mode)  # type: ignore[arg-type]
    if costs:
        _show_costs(sized)
        return
    command = launcher.command_of(loaded, mode, more or ())  # type: ignore[arg-type]
    if mode == "normal" and (step := launcher.check_resume(loaded, resume=resume)) is not None:
        typer.echo(f"going on from step {step}")
    missing = _show_checks(sized, trains=mode == "normal")
    if dry_run or not missing:
        typer.echo(f"\n{command.shown()}\n")
    if missing:
        typer.secho(f"not ready: {', '.join(missing)}", fg="red")
        raise typer.Exit(1)
    if dry_run:
        typer.secho("ready; nothing was started", fg="green")
        return
    launcher.write_resolved(loaded, mode)  # type: ignore[arg-type]
    raise typer.Exit(launcher.launch(command))


def _show_checks(recipe: object, *, trains: bool) -> list[str]:
    """Print every check; the names of those that failed."""
    from cua_lab.miles.preflight import preflight
    from cua_lab.miles.recipe import MilesRecipe

    assert isinstance(recipe, MilesRecipe)
    return show_checks(preflight(recipe, trains=trains))


def _show_costs(recipe: object) -> None:
    from cua_lab.miles.agreement import compare
    from cua_lab.miles.cost import costs_of
    from cua_lab.miles.recipe import MilesRecipe

    assert isinstance(recipe, MilesRecipe)
    for name, text in costs_of(recipe).lines():
        typer.echo(f"{name:<18}{text}")
    typer.echo("\nagainst our own trainer's defaults:")
    for one in compare(recipe):
        relation = "=" if one.ours == one.miles else "differs"
        typer.echo(
            f"{one.name:<18}{one.ours!s:<8} {one.miles!s:<8} {relation} {one.reason}".rstrip()
        )
