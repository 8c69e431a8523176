"""`cua-lab plan`: how long a step of a cluster run takes, what it costs, and what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cua_lab.cli.root import app

if TYPE_CHECKING:
    from cua_lab.miles.capacity import Plan

DESKTOPS = (10, 100, 10_000)


@app.command("plan")
def plan_run(
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe of `cua-lab miles`; the published one without it.")
    ] = None,
    desktops: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Sandboxes at once; may be given again.", show_default="several"),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="In all.", show_default="the recipe's")
    ] = None,
    prefill: Annotated[float, typer.Option(min=1, help="Tokens/s that an engine reads.")] = 20_000,
    decode: Annotated[
        float, typer.Option(min=1, help="Tokens/s that an engine writes for one request.")
    ] = 125,
    env_seconds: Annotated[float, typer.Option(min=0, help="Action to screenshot.")] = 1.0,
    boot_seconds: Annotated[float, typer.Option(min=0, help="Of a sandbox.")] = 60.0,
    train: Annotated[float, typer.Option(min=1, help="Tokens/s that a GPU trains.")] = 2_500,
    gpu_hour: Annotated[float, typer.Option(min=0, help="Price of a GPU for an hour.")] = 3.0,
    sandbox_hour: Annotated[float, typer.Option(min=0, help="Price of a sandbox.")] = 0.1,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            help="Finished runs of this lab: speeds from their records, beside their steps.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a number.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Simulate a step for several numbers of desktops; formulae in `cua_lab.miles.capacity`."""
    from dataclasses import replace

    from cua_lab.miles.capacity import H200, plan, workload_of
    from cua_lab.miles.recipe import PUBLISHED, load_miles_recipe

    if runs:
        _beside_runs(runs, desktops or [])
        return
    loaded = load_miles_recipe(recipe or PUBLISHED, overrides or [])
    speeds = replace(
        H200,
        prefill_tokens_s=prefill,
        decode_step_s=1 / decode,
        env_s=env_seconds,
        boot_s=boot_seconds,
        train_tokens_s=train,
    )
    cards = gpus or loaded.cluster.nodes * loaded.cluster.gpus
    plans = {}
    for count in desktops or (loaded.runtime.max_sandboxes, *DESKTOPS):
        work = workload_of(loaded, episodes=max(count, loaded.train.episodes))
        made = plan(work, speeds, sandboxes=count, gpus=cards, gpu_hour=gpu_hour,
                    sandbox_hour=sandbox_hour)  # fmt: skip
        plans[count] = work.episodes, made
    _show(plans)
    typer.echo(f"{cards} GPUs; speeds are as given or assumed, see `cua_lab.miles.capacity.H200`")


def _show(plans: dict[int, tuple[int, Plan]]) -> None:
    """Episodes and the plan of a step, by the number of desktops."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    names = ("desktops", "episodes", "rollout", "pixels", "training", "step", "cost", "waits for")
    for column in names:
        table.add_column(column, justify="left" if column == "waits for" else "right")
    for count, (episodes, made) in plans.items():
        seconds = (made.rollout.seconds, made.transfer_s, made.train_s, made.step_s)
        cells = [f"{value / 60:.1f} min" for value in seconds]
        table.add_row(str(count), str(episodes), *cells, f"{made.cost:.2f}", made.bottleneck)
    Console().print(table)


def _beside_runs(folders: list[Path], desktops: list[int]) -> None:
    """Steps of finished runs as planned and as measured, and as planned for other desktops."""
    from rich.console import Console
    from rich.table import Table

    from cua_lab.bench.plan_check import compare, planned, read_run, speeds_of

    records = [read_run(folder) for folder in folders]
    speeds = speeds_of(records)
    table = Table(box=None, pad_edge=False)
    for column in ("run", "stage", "desktops", "planned", "measured", "planned/measured"):
        table.add_column(column, justify="left" if column in ("run", "stage") else "right")
    for one in compare(records, speeds):
        seconds = (f"{one.plan.step_s:.2f} s", f"{one.measured_s:.2f} s", f"{one.ratio:.2f}")
        table.add_row(one.run, one.stage, str(one.concurrency), *seconds)
    for record in records:
        for stage in record.stages:
            for count in desktops:
                step = planned(stage, record, speeds, count).step_s
                table.add_row(record.name, stage.stage, str(count), f"{step:.2f} s", "-", "-")
    Console().print(table)
    if len({record.concurrency for record in records}) < 2 and desktops:
        typer.echo("runs of one number of desktops do not tell what another costs: give a second")
