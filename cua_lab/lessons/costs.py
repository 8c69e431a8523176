"""What a Miles recipe costs, drawn: where an episode's tokens go, and two axes that are dear.

Invariant: every number drawn comes from `cua_lab.miles.cost`; the lines of a limit come from the
recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cua_lab.miles.cost import MINUTES_PER_GIB, SCAFFOLD_TOKENS, Costs, costs_of
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, DASHES, INK, MARKERS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cua_lab.miles.recipe import MilesRecipe

PARTS = ("first prompt", "screenshots", "answers", "scaffold")
HATCHES = ("", "//", "..", "xx")


def token_parts(recipe: MilesRecipe) -> dict[str, tuple[int, ...]]:
    """Tokens by `PARTS`, of a turn and of an episode with typical and with full answers."""
    costs, agent = costs_of(recipe), recipe.agent
    typical, turns = recipe.context.typical_answer, agent.max_turns
    frames, between = costs.frames * costs.frame_tokens, (turns - 1) * SCAFFOLD_TOKENS
    return {
        "a turn": (0, costs.frame_tokens, typical, SCAFFOLD_TOKENS),
        "an episode": (costs.prompt_tokens, frames, turns * typical, between),
        "at most": (costs.prompt_tokens, frames, turns * agent.max_tokens, between),
    }


def binding_limit(recipe: MilesRecipe) -> tuple[int, str]:
    """Tokens that an episode may have, as `preflight` counts them, and which setting says so:
    Miles bounds the whole context and, apart from it, what follows the first prompt."""
    whole, answers = recipe.context.limit, recipe.context.response
    after_prompt = answers + costs_of(recipe).prompt_tokens
    if after_prompt < whole:
        return after_prompt, "context.response + the first prompt:"
    return whole, "context.limit"


def token_figure(recipe: MilesRecipe) -> Figure:
    """A turn above, an episode below, in tokens by who put them there."""
    parts = token_parts(recipe)
    with paper():
        figure = Picture(figsize=(10, 3.9), layout="constrained")
        turn, episode = figure.subplots(2, 1, height_ratios=(1, 2))
        _bars(turn, {"a turn": parts.pop("a turn")})
        _bars(episode, parts)
        limit, name = binding_limit(recipe)
        episode.axvline(limit, color=INK, linestyle=DASHES[1])
        episode.text(limit, -0.62, f" {name} {limit}", fontsize=9, va="center")
        episode.set_xlabel("tokens")
        figure.legend(*turn.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _bars(axes: Axes, rows: dict[str, tuple[int, ...]]) -> None:
    names = list(rows)
    left = [0] * len(rows)
    for k, part in enumerate(PARTS):
        values = [rows[name][k] for name in names]
        axes.barh(
            names, values, left=left, height=0.6, color=COLOURS[k], hatch=HATCHES[k],
            edgecolor="#ffffff", linewidth=0.8, label=part,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, values, strict=True)]
    for row, total in enumerate(left):
        axes.text(total, row, f" {total}", va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, max(left) * 1.13)
    axes.grid(axis="y", visible=False)


def sweep(
    recipe: MilesRecipe, widths: Sequence[int], turns: Sequence[int]
) -> Iterator[tuple[int, int, Costs]]:
    """Turns, screenshot width, and what they cost together."""
    for most in turns:
        for width in widths:
            tool = replace(recipe.tool, screenshot_width=width)
            agent = replace(recipe.agent, max_turns=most)
            yield most, width, costs_of(replace(recipe, tool=tool, agent=agent))


def sweep_figure(recipe: MilesRecipe, widths: Sequence[int], turns: Sequence[int]) -> Figure:
    """Tokens of an episode and pixels of a batch, over the width of a screenshot."""
    with paper():
        figure = Picture(figsize=(10.5, 3.8), layout="constrained")
        tokens, pixels = figure.subplots(1, 2)
        rows = list(sweep(recipe, widths, turns))
        for k, most in enumerate(turns):
            mine = [costs for t, _, costs in rows if t == most]
            look = {"color": COLOURS[k], "linestyle": DASHES[k], "marker": MARKERS[k]}
            tokens.plot(widths, [c.typical_tokens for c in mine], label=f"{most} turns", **look)
            pixels.plot(
                widths, [c.batch_bytes / 2**30 for c in mine], label=f"{most} turns", **look
            )
        most_tokens, name = binding_limit(recipe)
        _limit(tokens, most_tokens, f"{name} {most_tokens}")
        for minutes in (10, recipe.cluster.timeout_minutes):
            _limit(pixels, minutes / MINUTES_PER_GIB, f"{minutes} minutes")
        tokens.set_title("tokens of a typical episode")
        pixels.set_title("pixels of a batch, GiB")
        tokens.legend(loc="upper left", bbox_to_anchor=(0, 0.93))
        for axes in (tokens, pixels):
            axes.set_xlabel("width of a screenshot, px")
            axes.set_xticks(widths)
            axes.set_ylim(bottom=0)
    return figure


def _limit(axes: Axes, y: float, label: str) -> None:
    axes.axhline(y, color=INK, linewidth=1.2, linestyle=(0, (2, 2)))
    axes.annotate(
        label, (0.01, y), xycoords=("axes fraction", "data"), xytext=(0, 3),
        textcoords="offset points", fontsize=9,
    )  # fmt: skip
