"""`cua-lab new`: an env package of one's own that plays at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cua_lab.cli.root import app
from cua_lab.errors import LabError

if TYPE_CHECKING:
    from cua_lab.play.episode import Episode


@app.command()
def new(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to write: my_env.")],
    page: Annotated[
        Path | None,
        typer.Option(
            help="A web page with a button that has an id; it is copied. Without it the package "
            "draws its own screen."
        ),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play/--no-play", help="Play a few episodes of it at once.")
    ] = True,
) -> None:
    """Write a package with a screen, a state, a grader, tasks, a player, a test and a recipe."""
    from cua_lab.starter import LESSON, new_package

    files = new_package(name, page)
    typer.echo(f"wrote {name}: {', '.join(files)}")
    if play:
        _play(name)
    typer.echo(
        f"\nnext:\n  python -m pytest {name}\n  cua-lab run --recipe {name}/{name.name}.yaml"
        f"   # warm-up, GRPO, ablations\nand {LESSON}, which changes each of the files"
    )


def _play(folder: Path) -> None:
    """A few episodes by the scripted player and at random; both through HUD."""
    import asyncio

    from cua_lab.demonstrators.trial_play import try_out
    from cua_lab.env_package import env_package

    shown, at_random = asyncio.run(try_out(env_package(str(folder / "env.py"))))
    typer.echo(f"played: the scripted player {_earned(shown)}, random play {_earned(at_random)}")


def _earned(episodes: list[Episode]) -> str:
    failed = next((e.error for e in episodes if e.status == "failed"), None)
    if failed is not None:
        raise LabError(f"the package was written, but an episode of it failed: {failed}")
    rewards = [e.reward for e in episodes if e.reward is not None]
    return f"earns {sum(rewards) / len(rewards):.2f} over {len(rewards)} episodes"
