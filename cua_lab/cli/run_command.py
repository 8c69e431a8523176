"""`cua-lab run` and `cua-lab smoke`: the main job."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli import app

RUNS = Path("runs")
ROWS = {
    "reward": "reward",
    "valid calls": "valid_tool_calls",
    "keys a turn": "keys_per_turn",
    "screens read": "screens_read",
}
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a number: stages.click.grpo.steps=20", metavar="KEY=VALUE"
    ),
]
ABLATIONS = {
    "shuffled": "other screenshots",
    "blank": "blank screenshots",
    "random": "random play",
    "blind": "the best fixed actions",
}


@app.command()
def run(
    recipe: Annotated[str, typer.Option(help="A recipe's name, or a YAML file.")] = "laptop",
    name: Annotated[str | None, typer.Option(help="Folder under runs/; the recipe's name.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Delete an earlier run of this name.")] = False,
    overrides: Set = None,
) -> None:
    """Warm a policy up on demonstrations, improve it by GRPO, and show what came of it."""
    settings = list(overrides or [])
    if seed is not None:
        settings.append(f"run.seed={seed}")
    _run(recipe, RUNS / (name or Path(recipe).stem), settings, resume=resume, overwrite=overwrite)


@app.command()
def smoke(overrides: Set = None) -> None:
    """Play the whole path once with tiny numbers; takes under a minute, leaves runs/smoke."""
    _run("smoke", RUNS / "smoke", list(overrides or []), resume=False, overwrite=True)


def _run(
    recipe_name: str, path: Path, overrides: list[str], *, resume: bool, overwrite: bool
) -> None:
    import asyncio

    from cua_lab.recipes import load_recipe
    from cua_lab.run.folder import RunFolder
    from cua_lab.run.job import run_recipe

    recipe = load_recipe(recipe_name, overrides)
    if overwrite and not resume:
        shutil.rmtree(path, ignore_errors=True)
    folder = RunFolder.create(path, resume=resume)
    try:
        summary = asyncio.run(run_recipe(recipe, folder))
    except KeyboardInterrupt:
        typer.secho(f"\nstopped; {path} keeps what is done", fg="yellow", err=True)
        typer.echo(f"go on with: cua-lab run --recipe {recipe_name} --name {path.name} --resume")
        raise typer.Exit(130) from None
    _show(summary, path)


def _show(summary: dict, path: Path) -> None:
    """The before/after table of the run."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{summary['recipe']}, seed {summary['seed']}", title_justify="left")
    table.add_column("")
    for task in summary["tasks"]:
        table.add_column(task, justify="right", no_wrap=True)
    results = summary["tasks"].values()
    for label, key in ROWS.items():
        for when, words in (("before", "after warm-up"), ("after", "after GRPO")):
            values = [_shown(result.get(f"{key}_{when}")) for result in results]
            if key == "screens_read" and set(values) == {"-"}:
                continue
            table.add_row(f"{label}, {words}", *values, end_section=when == "after")
    for name in dict.fromkeys(name for result in results for name in result["ablations"]):
        values = [_shown(result["ablations"].get(name)) for result in results]
        table.add_row(f"reward, {ABLATIONS[name]}", *values)
    console = Console()
    console.print(table)
    for task, result in summary["tasks"].items():
        console.print(f"{task}: {result['learnt']}", highlight=False)
    seconds = summary["seconds"]
    console.print(
        f"{seconds['total']:.0f} s, peak memory {summary['peak_rss_gib']:.1f} GiB,"
        f" engine and trainer agree to {summary['logprob_gap_max'] or float('nan'):.1e}",
        highlight=False,
    )
    console.print(f"look at {path / 'report.html'}", highlight=False)


def _shown(value: dict | None) -> str:
    if value is None:
        return "-"
    error = "" if value["se"] is None else f" ± {value['se']:.3f}"
    return f"{value['mean']:.3f}{error}"
