"""A matplotlib figure that shows itself: in a notebook it is a PNG with a description, anywhere
else a `Figure`.

Invariant: it belongs to nobody's pyplot, so it is drawn once, where it stands, and never leaks.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cua_lab.pictures import base64_text
from cua_lab.viz.style import paper


class Picture(Figure):
    """Use as any `Figure`; as the last line of a cell it is displayed."""

    alt: str | None = None
    """What it shows, for people who cannot see it; `None`: what its titles and labels say."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with paper():
            self.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        png = base64_text(self._repr_png_())
        alt = self.alt or description(self)
        return {"image/png": png}, {"image/png": {"alt": alt}}


def description(figure: Figure) -> str:
    """A figure in words: each panel's title, axes and series."""
    panels = [words for axes in figure.axes if (words := "; ".join(_panel(axes)))]
    named = figure.get_suptitle()
    head = f"{named}. " if named else ""
    several = f"Figure of {len(panels)} panels: " if len(panels) > 1 else "Figure: "
    return " ".join(f"{head}{several}{'. '.join(panels)}".split())


def _panel(axes: Axes) -> Iterator[str]:
    title = axes.get_title() or axes.get_title(loc="left")
    if title:
        yield title
    sides = (("across", axes.get_xlabel()), ("up", axes.get_ylabel()))
    yield from (f"{side}: {label}" for side, label in sides if label)
    _, names = axes.get_legend_handles_labels()
    if names:
        yield f"series: {', '.join(dict.fromkeys(names))}"
