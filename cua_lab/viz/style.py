"""How the lab's matplotlib figures look: an opaque paper card that reads in light and dark themes.

Invariant: lines differ by colour, by dash and by marker, so no figure depends on colour alone; and
the SVG ids are salted with a fixed word, so a stored figure is the same every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PAPER, INK, RULE = "#fbfbf9", "#111111", "#d9dade"
COLOURS = ("#0b57d0", "#c2410c", "#137a3d", "#7c2d92")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), "-.")
MARKERS = ("o", "s", "^", "D")

_RC: Any = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": "#6b6f76",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "font.family": "DejaVu Sans",
    "lines.linewidth": 1.9,
    "svg.hashsalt": "cua_lab",
    "figure.dpi": 110,
}


@contextmanager
def paper() -> Iterator[None]:
    """Draw inside this to get the lab's look without changing anybody's defaults."""
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        yield
