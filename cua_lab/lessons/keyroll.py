"""Key events as a piano roll: one row a key, a bar from its going down to its coming up.

Invariant: time is the order of events, one step each, so the picture is the same every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cua_lab.viz.picture import Picture
from cua_lab.viz.style import COLOURS, INK, PAPER, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cua_lab.desktop.apps.recording import KeyEvent

Bar = tuple[int, int, int]
"""(keysym, index of its down event, index of its up event)"""


PAGES = {0xFF55: "Page_Up", 0xFF56: "Page_Down"}
"""X11 lists these first as Prior and Next, which nobody reads."""


def bars_of(events: Sequence[KeyEvent]) -> list[Bar]:
    """Each press with where it began and ended; one that never ended lasts to the last event."""
    held: dict[int, int] = {}
    bars: list[Bar] = []
    for index, (kind, keysym) in enumerate(events):
        if kind == "down":
            held[keysym] = index
        elif keysym in held:
            bars.append((keysym, held.pop(keysym), index))
    bars += [(keysym, start, len(events)) for keysym, start in held.items()]
    return sorted(bars, key=lambda bar: bar[1])


def key_roll(rolls: dict[str, Sequence[KeyEvent]]) -> Figure:
    """One panel for each named list of events, side by side."""
    with paper():
        figure = Picture(figsize=(10.5, 2.6), layout="constrained")
        widths = [max(4, len(events)) for events in rolls.values()]
        panels = figure.subplots(1, len(rolls), width_ratios=widths, squeeze=False)[0]
        for axes, (title, events) in zip(panels, rolls.items(), strict=True):
            _roll(axes, title, events)
    return figure


def _roll(axes: Axes, title: str, events: Sequence[KeyEvent]) -> None:
    bars = bars_of(events)
    rows = list(dict.fromkeys(keysym for keysym, _, _ in bars))
    for keysym, start, end in bars:
        row = rows.index(keysym)
        held = any(s < start < e or s < end < e for k, s, e in bars if k != keysym)
        axes.barh(
            row, end - start, left=start, height=0.5, color=COLOURS[1 if held else 0],
            edgecolor=INK, hatch="//" if held else "",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [key_name(keysym) for keysym in rows])
    axes.set_xticks(range(len(events) + 1), [str(i) for i in range(len(events) + 1)])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_facecolor(PAPER)
    axes.set_xlabel("event")
    axes.set_title(title)


def key_name(keysym: int) -> str:
    """A short name: X11's, or the character."""
    from keysymdef import keysymdef

    if 0x21 <= keysym <= 0x7E:
        return chr(keysym)
    if keysym in PAGES:
        return PAGES[keysym]
    names: dict[int, str] = {value: name for name, value, _ in reversed(keysymdef)}
    return names.get(keysym, f"U+{keysym & 0xFFFFFF:04X}").replace("_L", "")
