"""`cua-lab data check FILE`: which rows of a JSONL can be trained on, and why the others cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cua_lab.cli.data_command import data_app
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.dataset.quality import QualityReport

FORMATS = (
    *("screenspot", "screenspot-v2", "screenspot-hf"),
    *("agentnet", "aguvis", "osworld", "webarena"),
)
"""What `convert` reads; here as well, so that `--help` need not load the readers."""


@data_app.command()
def check(
    file: Annotated[Path, typer.Argument(help="JSONL, one sample a line.")],
    space: Annotated[
        str | None,
        typer.Option(help="Coordinate space of the file: 0-1, 0-1000 or pixels. Never guessed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: NAME.checked beside it.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the screenshots; default: the file's own.")
    ] = None,
    min_size: Annotated[str, typer.Option(help="Smallest screenshot, WxH.")] = "1024x768",
    max_elements: Annotated[int, typer.Option(help="Most elements of a screen.")] = 200,
    instruction_chars: Annotated[
        str, typer.Option(help="Shortest and longest instruction, MIN:MAX.")
    ] = "3:500",
    languages: Annotated[
        str, typer.Option(help="Accepted languages, told apart by script; 'any' for all.")
    ] = "en",
    point_in_elements: Annotated[
        bool, typer.Option(help="Without a box, some element must lie under the point.")
    ] = True,
    decode: Annotated[
        bool,
        typer.Option(help="Read the pixels: finds truncated, blank and near-duplicate screens."),
    ] = True,
) -> None:
    """Sort the rows of FILE into accepted and rejected, with every reason.

    Exit status 1 when the whole file looks like another coordinate space than the one declared.
    """
    from cua_lab.dataset.data_checks import Rules
    from cua_lab.dataset.quality import check_file
    from cua_lab.dataset.spaces import as_space
    from cua_lab.viz.quality_plot import write_reasons

    rules = Rules(
        space=None if space is None else as_space(space),
        min_size=_pair(min_size, "x", "--min-size", "1024x768"),
        max_elements=max_elements,
        instruction_chars=_pair(instruction_chars, ":", "--instruction-chars", "3:500"),
        languages=() if languages == "any" else tuple(languages.split(",")),
        point_in_elements=point_in_elements,
    )
    report = check_file(file, rules, out=out, root=root, decode=decode, progress=True)
    write_reasons(report)
    _print(report)
    if report.space_mismatch:
        raise typer.Exit(1)


@data_app.command()
def convert(
    format: Annotated[str, typer.Argument(help=f"One of {', '.join(FORMATS)}.")],
    file: Annotated[Path, typer.Argument(help="The public file: JSON or JSONL.")],
    out: Annotated[Path, typer.Argument(help="The JSONL to write.")],
    images: Annotated[
        Path | None, typer.Option(help="Folder that the format's image names start from.")
    ] = None,
) -> None:
    """Turn a public dataset's file into our samples or, for OSWorld and WebArena, HUD task rows."""
    from cua_lab.dataset.formats import convert_file, licences

    done = convert_file(format, file, out, images=images)
    if done.skipped and not done.rows:
        raise LabError(
            f"none of the {done.skipped} rows of {file} could be read as {format}; the reason of"
            f" each is in {done.skipped_file}"
        )
    typer.echo(f"wrote {done.rows} rows to {out}; licence of the public rows: {licences()[format]}")
    if done.skipped:
        typer.echo(f"{done.skipped} rows could not be read; see why in {done.skipped_file}")


def _pair(text: str, mark: str, option: str, example: str) -> tuple[int, int]:
    try:
        low, high = (int(part) for part in text.split(mark))
    except ValueError as error:
        raise LabError(
            f"{option} takes two whole numbers, such as {example}; got {text}"
        ) from error
    return low, high


def _print(report: QualityReport) -> None:
    from rich.console import Console
    from rich.table import Table

    from cua_lab.dataset.data_checks import REASONS

    console = Console()
    table = Table("reason", "rows", "share", "means")
    for name, count in report.reasons.items():
        table.add_row(name, f"{count:,}", f"{count / max(report.rows, 1):.1%}", REASONS[name])
    if report.reasons:
        console.print(table)
    rate = report.rows / report.seconds if report.seconds else 0.0
    console.print(
        f"{report.rows:,} rows: {report.accepted:,} accepted, {report.rejected:,} rejected"
        f" ({rate:,.0f} rows/s)"
    )
    for name in report.not_checked:
        console.print(f"not looked for without --decode: {name}")
    if report.space_mismatch:
        console.print(f"[bold red]another coordinate space?[/] {report.space_mismatch}")
    for path in report.files.values():
        console.print(path, soft_wrap=True)
