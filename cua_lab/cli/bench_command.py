"""`cua-lab bench`: how fast the lab's own parts are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cua_lab.cli.root import app

bench = typer.Typer(help="Measure the lab's own parts on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.callback()
def _bench() -> None:
    """Measure the lab's own parts on this machine."""


@bench.command("stitch")
def bench_stitch(
    repeats: Annotated[int, typer.Option(min=1, help="Best of this many runs.")] = 9,
) -> None:
    """Stitching beside the published way, at 8, 24 and 96 turns."""
    import platform

    from rich.console import Console
    from rich.table import Table

    from cua_lab.bench.stitch_bench import table

    shown = Table(title=f"stitching one episode, CPU-ms, best of {repeats}")
    headings = ("turns", "tokens", "divergences", "record", "stitch", "published way", "faster")
    for heading in (*headings, "trained / sampled"):
        shown.add_column(heading, justify="right")
    for row in table(repeats=repeats):
        shown.add_row(
            str(row.turns),
            f"{row.tokens:,}",
            str(row.divergences),
            f"{row.record_ms:.2f}",
            f"{row.ours_ms:.2f}",
            f"{row.reference_ms:.1f}",
            f"{row.reference_ms / row.ours_ms:.0f}x",
            f"{row.kept} / {row.sampled}",
        )
    console = Console()
    console.print(shown)
    console.print(f"{platform.machine()}, Python {platform.python_version()}; one thread")


@bench.command("browser")
def bench_browser(
    actions: Annotated[int, typer.Option(min=1, help="Actions per measurement.")] = 50,
    desktops: Annotated[int, typer.Option(min=1, max=16, help="Browsers at once.")] = 4,
) -> None:
    """The real browser: stale frames, milliseconds per action, throughput, the screenshot path."""
    import asyncio

    from rich.console import Console
    from rich.table import Table

    from cua_lab.bench import browser_bench as browser

    ways = asyncio.run(browser.settling(actions=actions))
    shown = Table(title=f"an animated page, {actions} actions each")
    for heading in ("settling", "stale frames", "ms per action"):
        shown.add_column(heading, justify="right")
    for way in ways:
        shown.add_row(way.name, f"{way.stale} of {way.actions}", f"{way.ms:.0f}")
    console = Console()
    console.print(shown)
    paths = asyncio.run(browser.screenshot_paths())
    console.print(
        f"screenshot 1280x1200 to 512 wide: {paths.ours_ms:.0f} ms, HUD's PNG and LANCZOS "
        f"{paths.hud_ms:.0f} ms: {paths.times:.1f}x"
    )
    row = asyncio.run(browser.together(desktops, actions=actions))
    console.print(
        f"{row.desktops} desktops: booted in {row.boot_s:.1f} s, {row.actions_per_s:.0f} actions/s "
        f"together, {row.latency_ms:.0f} ms each"
    )


@bench.command("compare")
def bench_compare(
    parts: Annotated[
        list[str] | None,
        typer.Argument(help="Of screenshot, stitch, decode, episode, settle (a browser)."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each side takes its turn.")] = 9,
    out: Annotated[
        Path | None, typer.Option(help="Also write FILE.json, and FILE.md with the table.")
    ] = None,
) -> None:
    """Parts of the lab beside named peers, taking turns in one process."""
    from cua_lab.bench.comparison import compare, write_comparison

    found = compare(parts, rounds=rounds)
    typer.echo(found.markdown())
    if out is not None:
        for file in write_comparison(found, out):
            typer.echo(f"wrote {file}")
