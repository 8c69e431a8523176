"""`cua-lab run`, `cua-lab smoke` and `cua-lab recipes`: the main job."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cua_lab.cli.root import app
from cua_lab.cli.runs import RUNS, run_path, stoppable
from cua_lab.errors import LabError
from cua_lab.recipes.loader import FOLDER, about, changes, load_recipe, recipe_names

if TYPE_CHECKING:
    from cua_lab.recipes import Recipe

ROWS = {
    "reward": "reward",
    "valid calls": "valid_tool_calls",
    "keys per turn": "keys_per_turn",
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
DEFAULT = "laptop"


@app.command()
def run(
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"A recipe's name ({', '.join(recipe_names())}) or a YAML file.",
            show_default=DEFAULT,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the folder under runs/; the recipe's, if not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a run that was stopped, as its config.yaml says."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run of this name first.")
    ] = False,
    overrides: Set = None,
) -> None:
    """Warm a policy up on demonstrations, improve it by GRPO, and show the result.

    `cua-lab recipes` says what each recipe does and how long it takes.
    """
    settings = list(overrides or [])
    if seed is not None:
        settings.append(f"run.seed={seed}")
    path = run_path(name, recipe or DEFAULT)
    if resume and overwrite:
        raise LabError("--resume goes on with a run and --overwrite deletes it; give one of them")
    if resume:
        loaded = stored_recipe(path, recipe, settings)
    else:
        loaded = load_recipe(recipe or DEFAULT, settings)
    _run(loaded, path, resume=resume, overwrite=overwrite)


@app.command()
def smoke(overrides: Set = None) -> None:
    """Play the whole path once with tiny numbers; takes under a minute, leaves runs/smoke."""
    loaded = load_recipe("smoke", list(overrides or []))
    _run(loaded, RUNS / "smoke", resume=False, overwrite=True)


@app.command()
def recipes() -> None:
    """List the recipes: what each one does and how long it takes."""
    files = sorted(path for path in FOLDER.glob("*.yaml"))
    for file in files:
        command = "sft" if file.stem.startswith("sft-") else "run"
        typer.echo(f"cua-lab {command} --recipe {file.stem}\n    {about(file)}")


def stored_recipe(path: Path, recipe: str | None, settings: list[str]) -> Recipe:
    """The recipe that a stopped run was started with; whatever is asked for besides must agree."""
    file = path / "config.yaml"
    if not file.is_file():
        raise LabError(f"nothing to resume in {path}: there is no run; leave --resume out")
    stored = load_recipe(file)
    asked = load_recipe(recipe, settings) if recipe else load_recipe(file, settings)
    if found := changes(stored, asked):
        raise LabError(
            f"{path} was started with other numbers than you ask for now: {'; '.join(found[:5])}"
            + (f" and {len(found) - 5} more" if len(found) > 5 else "")
            + ". Go on with --name and --resume alone, or start a new run under another --name"
        )
    return stored


def _run(recipe: Recipe, path: Path, *, resume: bool, overwrite: bool) -> None:
    import asyncio

    from cua_lab.run.folder import RunFolder
    from cua_lab.run.job import run_recipe
    from cua_lab.run.trainers import follow_recipe
    from cua_lab.training.ranks import join, leave

    ranks = join(cpu=all(stage.trainer.device == "cpu" for stage in recipe.stages))
    if not ranks.first:  # `accelerate launch` starts this command once for each process
        follow_recipe(recipe, ranks)
        return leave()
    with stoppable(path, f"cua-lab run --name {shlex.quote(path.name)} --resume"):
        folder = RunFolder.create(path, resume=resume, overwrite=overwrite)
        summary = asyncio.run(run_recipe(recipe, folder, ranks=ranks))
    _show(summary, path)
    return leave()


def _show(summary: dict[str, Any], path: Path) -> None:
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
        f" {agreement(summary['logprob_gap_max'])}",
        highlight=False,
    )
    console.print(f"look at {path / 'report.html'}", highlight=False)


def agreement(gap: float | None) -> str:
    """What is said of the largest gap between engine and trainer; without one nothing was compared,
    as with no GRPO step or none that had a sampled token."""
    if gap is None:
        return "engine and trainer not compared: no token was trained on"
    return f"engine and trainer agree to {gap:.1e}"


def _shown(value: dict[str, Any] | None) -> str:
    if value is None:
        return "-"
    error = "" if value["se"] is None else f" ± {value['se']:.3f}"
    return f"{value['mean']:.3f}{error}"
