"""`cua-lab sft`: fine-tune a policy on a file of samples or conversations."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli import app

RUNS = Path("runs")


@app.command()
def sft(
    data: Annotated[
        Path, typer.Option(help="JSONL that `cua-lab data check` has passed, or conversations.")
    ],
    recipe: Annotated[str, typer.Option(help="A recipe's name, or a YAML file.")] = "sft-targets",
    model: Annotated[
        str | None, typer.Option(help="Checkpoint folder to start from, instead of the recipe's.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Folder under runs/; the recipe's name.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the screenshots; default: the file's own.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a training that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Delete an earlier run of this name.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a number: train.lr=2e-5", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Fine-tune a policy, whole or by LoRA, and export what any engine serves."""
    from cua_lab.recipes.sft_recipe import load_sft_recipe
    from cua_lab.run.folder import RunFolder
    from cua_lab.run.sft_job import run_sft

    settings = list(overrides or [])
    if model is not None:
        settings.append(f"policy.checkpoint={model}")
    loaded = load_sft_recipe(recipe, settings)
    path = RUNS / (name or Path(recipe).stem)
    if overwrite and not resume:
        shutil.rmtree(path, ignore_errors=True)
    folder = RunFolder.create(path, resume=resume)
    try:
        summary = run_sft(loaded, data, folder, root=root)
    except KeyboardInterrupt:
        typer.secho(f"\nstopped; {path} keeps what is done", fg="yellow", err=True)
        typer.echo(
            f"go on with: cua-lab sft --data {data} --recipe {recipe} --name {path.name} --resume"
            " and the same options"
        )
        raise typer.Exit(130) from None
    learning = f"{summary['learning'] / 1e6:.1f} M of {summary['parameters'] / 1e6:.1f} M weights"
    typer.echo(f"{summary['steps']} updates of {learning} in {summary['seconds']['total']:.0f} s")
    typer.echo(f"look at how well it aims: cua-lab eval FILE --model {path / 'model'}")
