"""An answer as a column of bars: each token with the probability it was sampled at.

Invariant: tokens stand in the order in which they were said, from top to bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper
from cua_lab.viz.visible import plot_text, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE = 0.9
"""From this probability on a token is drawn as form, below it as a decision."""
LONGEST = 44


def token_bars(texts: Sequence[str], probabilities: Sequence[float]) -> Figure:
    """One row a token; certain ones plain, open ones hatched."""
    with paper():
        figure = Picture(figsize=(9, 0.7 + 0.29 * len(texts)), layout="constrained")
        axes = figure.subplots()
        for row, p in enumerate(probabilities):
            sure = p >= SURE
            axes.barh(
                row, p, height=0.62, color=COLOURS[0 if sure else 1], hatch="" if sure else "//",
                edgecolor=INK, linewidth=0.8,
            )  # fmt: skip
            axes.text(p + 0.012, row, f"{p:.2f}", va="center", fontsize=9)
        axes.set_yticks(range(len(texts)), [_label(text) for text in texts], family="monospace")
        axes.set_ylim(len(texts) - 0.4, -0.6)
        axes.set_xlim(0, 1.09)
        axes.set_xlabel(f"probability (hatched: below {SURE}, a decision)")
        axes.grid(axis="y", visible=False)
    return figure


def _label(text: str) -> str:
    """Visible glyphs for spaces and newlines, and `$` kept from being mathematics."""
    shown = visible(text)
    return plot_text(shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…")
