"""`cua-lab gpu-check`: does training run on this machine's GPU, how fast, in how much memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from cua_lab.cli.root import app


@app.command("gpu-check")
def gpu_check(
    size: Annotated[
        str, typer.Option(help="Shape of the network with random weights: tiny, 2b or 4b.")
    ] = "2b",
    device: Annotated[str, typer.Option(help="cuda, cpu, or auto: a GPU where there is one.")] = (
        "auto"
    ),
    engine: Annotated[
        str, typer.Option(help="Who samples in the contract: embedded, vllm or sglang; none.")
    ] = "embedded",
    whole: Annotated[
        bool, typer.Option("--whole", help="Every weight learns, instead of adapters.")
    ] = False,
    shard: Annotated[
        bool, typer.Option("--shard", help="Split the weights over the processes (FSDP2).")
    ] = False,
    tokens: Annotated[int, typer.Option(min=192, help="Of one sequence.")] = 4096,
    rows: Annotated[int, typer.Option(min=1, help="Sequences a step, for each process.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Measured after a first one.")] = 3,
) -> None:
    """Contract of the engine, speed and memory of training steps, parity of several processes.

    On several GPUs: accelerate launch --num_processes N -m cua_lab gpu-check --whole --shard.
    """
    import asyncio
    import tempfile
    from pathlib import Path

    from cua_lab.bench import gpu_check as check
    from cua_lab.recipes import LoraSettings, TrainerSettings
    from cua_lab.recipes.loader import build_settings
    from cua_lab.training.precision import precision_of
    from cua_lab.training.ranks import join, leave

    _one_of("--size", size, check.SIZES)
    _one_of("--engine", engine, (*check.ENGINES, "none"))
    settings = build_settings(TrainerSettings, {"device": device}, file="--device")
    cuda = precision_of(settings.device, "float32", section="trainer").device != "cpu"
    place = TrainerSettings(
        device="cuda" if cuda else "cpu",
        precision="bfloat16" if cuda else "float32",
        gradient_checkpointing=True,
        shard=shard,
        lora=None if whole or shard else LoraSettings(r=32, alpha=64),
    )
    ranks = join(cpu=not cuda)
    if ranks.first and ranks.alone and engine != "none":
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(check.contract(engine, place.device, Path(folder) / "run"))
        gap = "not measured" if found.gap is None else f"{found.gap:.1e}"
        typer.echo(
            f"contract   {found.engine}: {found.steps} GRPO steps, {found.episodes} episodes,"
            f" {found.failed} failed, engine and trainer apart by {gap}"
        )
    speed = check.speed(size, place, rows=rows, length=tokens, steps=steps, ranks=ranks)
    apart = None if ranks.alone else check.parity(place, ranks)
    if ranks.first:
        typer.echo(check.described(speed, apart))
    leave()


def _one_of(option: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise typer.BadParameter(f"{value!r}; there are {', '.join(known)}", param_hint=option)
