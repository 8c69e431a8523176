"""What fills a card while a recipe trains: the trainer's parts and the engine's share, drawn.

Invariant: every number drawn comes from `cua_lab.run.cards`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cua_lab.run.cards import GIB, Row
from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "weights": ("weights", "their bfloat16 copies", "adapters"),
    "gradients and AdamW": ("gradients", "AdamW"),
    "activations and logits": ("activations", "logits"),
}
HATCHES = ("", "//", "..", "xx")


def kinds_of(row: Row) -> dict[str, float]:
    """GiB of the card by kind, the engine's share last; none of the trainer's parts is left out."""
    _, memory, engine, _ = row
    gib = {
        kind: sum(memory.parts.get(part, 0) for part in parts) / GIB
        for kind, parts in KINDS.items()
    }
    return gib | {"engine": engine}


def card_figure(rows: Sequence[Row]) -> Figure:
    """A bar for each setup, as a share of its card."""
    setups = [setup for setup, _, _, _ in rows]
    names = [f"{setup.recipe}\n{setup.card.name}, {setup.purpose}" for setup in setups]
    bars = dict(zip(names, map(kinds_of, rows), strict=True))
    sizes = [setup.card.gib for setup in setups]
    with paper():
        figure = Picture(figsize=(10, 3.2), layout="constrained")
        axes = figure.subplots()
        left = [0.0] * len(bars)
        for k, kind in enumerate((*KINDS, "engine")):
            shares = [bar[kind] / size for bar, size in zip(bars.values(), sizes, strict=True)]
            axes.barh(
                list(bars), shares, left=left, height=0.6, color=COLOURS[k], hatch=HATCHES[k],
                edgecolor="#ffffff", linewidth=0.8, label=kind,
            )  # fmt: skip
            left = [a + b for a, b in zip(left, shares, strict=True)]
        for place, (total, size) in enumerate(zip(left, sizes, strict=True)):
            axes.text(total + 0.01, place, f"{total * size:.0f} of {size:g} GiB", va="center")
        axes.axvline(1.0, color=INK, linewidth=1.2)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("share of the card")
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=4)
    figure.alt = f"Shares of a card, a bar for each setup. {_said(bars)}."
    return figure


def _said(bars: Mapping[str, Mapping[str, float]]) -> str:
    return "; ".join(
        f"{' '.join(name.split())}: "
        + ", ".join(f"{kind} {size:.0f} GiB" for kind, size in bar.items())
        for name, bar in bars.items()
    )
