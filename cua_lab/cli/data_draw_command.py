"""`cua-lab data draw`: grounding samples drawn here, with boxes exact by construction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.data_command import data_app
from cua_lab.errors import LabError

APPS = ("targets", "todo", "refusals")


@data_app.command()
def draw(
    out: Annotated[Path, typer.Argument(help="Folder for samples.jsonl and its screenshots.")],
    app: Annotated[str, typer.Option(help=f"What is drawn: {', '.join(APPS)}.")] = ("targets"),
    count: Annotated[int, typer.Option(help="How many samples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed draws other screens.")] = 0,
    levels: Annotated[str, typer.Option(help="Levels of targets, in turn.")] = "1",
    size: Annotated[str, typer.Option(help="Of the screens, WxH.")] = "128x128",
    policy: Annotated[
        str, typer.Option(help="Of refusals: the safety policy that says what to ask about.")
    ] = "default",
) -> None:
    """Draw screens with an instruction and the box that answers it; refusals have instructions
    that are to be asked about or declined, beside harmless ones."""
    from tqdm import tqdm

    from cua_lab.dataset.grounding import read_samples, write_samples
    from cua_lab.dataset.refusals import misfits, refusal_samples
    from cua_lab.dataset.synthetic import targets_samples, todo_samples
    from cua_lab.safety.policy_file import load_policy

    if app not in APPS:
        raise LabError(f"--app {app!r} draws nothing; there are {', '.join(APPS)}")
    if count < 1:
        raise LabError(f"--count must be at least 1; got {count}")
    width, height = _numbers(size, "x", "--size", "128x128", 2)
    out.mkdir(parents=True, exist_ok=True)
    if app == "refusals":
        samples = refusal_samples(
            out, count, load_policy(policy), seed=seed, sizes=((width, height),)
        )
    elif app == "todo":
        samples = todo_samples(out, count, seed=seed, sizes=[(width, height)])
    else:
        chosen = _numbers(levels, ",", "--levels", "1,2,3", None)
        samples = targets_samples(out, count, seed=seed, levels=chosen, sizes=[(width, height)])
    path = out / "samples.jsonl"
    write_samples(path, tqdm(samples, total=count, desc="draw", unit="screen", disable=None))
    if app == "refusals" and (wrong := misfits(read_samples(path))):
        raise LabError(f"{path}: {len(wrong)} rows do not fit; the first: {wrong[0]}")
    typer.echo(f"wrote {count} samples to {path}")


def _numbers(text: str, mark: str, option: str, example: str, count: int | None) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(mark)]
    except ValueError as error:
        raise LabError(f"{option} takes whole numbers, such as {example}; got {text}") from error
    if not numbers or (count is not None and len(numbers) != count):
        raise LabError(f"{option} takes whole numbers, such as {example}; got {text}")
    return numbers
