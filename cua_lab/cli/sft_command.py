"""`cua-lab sft`: fine-tune a policy on a file of samples or conversations."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cua_lab.cli.root import app
from cua_lab.cli.runs import run_path, stoppable
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.recipes.sft_recipe import SftRecipe


@app.command()
def sft(
    data: Annotated[
        Path, typer.Option(help="JSONL that `cua-lab data check` has passed, or conversations.")
    ],
    recipe: Annotated[
        str, typer.Option(help="A recipe's name, see `cua-lab recipes`, or a YAML file.")
    ] = ("sft-targets"),
    model: Annotated[
        str | None, typer.Option(help="Checkpoint folder to start from, instead of the recipe's.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the folder under runs/; the recipe's, if not given.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the screenshots; default: the file's own.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run of this name.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a number: train.lr=2e-5", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Fine-tune a policy, whole or by LoRA, and export what any engine serves."""
    from cua_lab.recipes.sft_recipe import load_sft_recipe
    from cua_lab.run.folder import RunFolder
    from cua_lab.run.sft_job import run_sft

    if resume and overwrite:
        raise LabError("--resume goes on with a run and --overwrite deletes it; give one of them")
    settings = list(overrides or [])
    if model is not None:
        settings.append(f"policy.checkpoint={model}")
    loaded = load_sft_recipe(recipe, settings)
    path = run_path(name, recipe)
    if resume:
        _check_same(path, loaded)
    given = ["--data", str(data), "--recipe", recipe, "--name", path.name]
    given += [part for setting in settings for part in ("--set", setting)]
    given += ["--root", str(root)] if root is not None else []
    with stoppable(path, f"cua-lab sft {shlex.join(given)} --resume"):
        folder = RunFolder.create(path, resume=resume, overwrite=overwrite)
        summary = run_sft(loaded, data, folder, root=root)
    learning = f"{summary['learning'] / 1e6:.1f} M of {summary['parameters'] / 1e6:.1f} M weights"
    typer.echo(f"{summary['steps']} updates of {learning} in {summary['seconds']['total']:.0f} s")
    typer.echo(f"look at how well it aims: cua-lab eval FILE --model {path / 'model'}")


def _check_same(path: Path, asked: SftRecipe) -> None:
    """A training goes on with the numbers that it was started with."""
    from cua_lab.recipes.loader import changes
    from cua_lab.recipes.sft_recipe import load_sft_recipe

    file = path / "config.yaml"
    if file.is_file() and (found := changes(load_sft_recipe(file), asked)):
        raise LabError(
            f"{path} was started with other numbers than you ask for now: {'; '.join(found[:5])}."
            " Go on with the same options, or start a new run under another --name"
        )
