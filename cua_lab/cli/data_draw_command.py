"""`cua-lab data draw`: grounding samples drawn here, with boxes exact by construction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.data_command import data_app
from cua_lab.errors import LabError

APPS = ("targets", "todo")


@data_app.command()
def draw(
    out: Annotated[Path, typer.Argument(help="Folder for samples.jsonl and its screenshots.")],
    app: Annotated[str, typer.Option(help=f"What is on the screens: {' or '.join(APPS)}.")] = (
        "targets"
    ),
    count: Annotated[int, typer.Option(help="How many samples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed draws other screens.")] = 0,
    levels: Annotated[str, typer.Option(help="Levels of targets, in turn.")] = "1",
    size: Annotated[str, typer.Option(help="Of the screens, WxH.")] = "128x128",
) -> None:
    """Draw screens with an instruction and the box that answers it."""
    from tqdm import tqdm

    from cua_lab.dataset.grounding import write_samples
    from cua_lab.dataset.synthetic import targets_samples, todo_samples

    if app not in APPS:
        raise LabError(f"--app {app!r} draws nothing; there are {', '.join(APPS)}")
    if count < 1:
        raise LabError(f"--count must be at least 1; got {count}")
    width, height = _numbers(size, "x", "--size", "128x128", 2)
    out.mkdir(parents=True, exist_ok=True)
    if app == "todo":
        samples = todo_samples(out, count, seed=seed, sizes=[(width, height)])
    else:
        chosen = _numbers(levels, ",", "--levels", "1,2,3", None)
        samples = targets_samples(out, count, seed=seed, levels=chosen, sizes=[(width, height)])
    path = out / "samples.jsonl"
    write_samples(path, tqdm(samples, total=count, desc="draw", unit="screen", disable=None))
    typer.echo(f"wrote {count} samples to {path}")


def _numbers(text: str, mark: str, option: str, example: str, count: int | None) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(mark)]
    except ValueError as error:
        raise LabError(f"{option} takes whole numbers, such as {example}; got {text}") from error
    if not numbers or (count is not None and len(numbers) != count):
        raise LabError(f"{option} takes whole numbers, such as {example}; got {text}")
    return numbers
