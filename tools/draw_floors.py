"""The floors of `pyproject.toml`, drawn: text for a terminal, SVG for the README.

    python tools/draw_floors.py             # print them
    python tools/draw_floors.py --write     # and write docs/floors.svg anew

Invariant: both pictures are functions of the list alone, so a test can tell an old one.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.floors import ROOT, Floors, read_floors

PICTURE = ROOT / "docs" / "floors.svg"
WIDTH = 760
HEIGHT = 34
"""px of one floor."""
GAP = 6
PALETTE = ("#e8f1fb", "#e9f6ec", "#fdf3e1", "#f6ebf7", "#eceff3")
STYLE = "font: 14px ui-sans-serif, system-ui, sans-serif"


def as_text(floors: Floors) -> str:
    """One line a floor, the top one first."""
    width = max(len(_line(rooms)) for rooms in floors)
    edge = "+" + "-" * (width + 2) + "+"
    return "\n".join([edge, *(f"| {_line(rooms):{width}} |" for rooms in floors), edge])


def _line(rooms: Sequence[str]) -> str:
    return "   ".join(rooms)


def as_svg(floors: Floors) -> str:
    """A band for each floor, a box for each room, an arrow that says which way imports go."""
    height = len(floors) * (HEIGHT + GAP) + GAP
    label = "; ".join(", ".join(rooms) for rooms in floors)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{html.escape("Floors from the top: " + label, quote=True)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, rooms in enumerate(floors):
        parts += _floor(rooms, GAP + number * (HEIGHT + GAP), PALETTE[number % len(PALETTE)])
    parts += _arrow(height)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _floor(rooms: Sequence[str], top: int, colour: str) -> list[str]:
    """The rooms of one floor share its width evenly."""
    width = (WIDTH - 40 - GAP * (len(rooms) + 1)) / len(rooms)
    parts = []
    for index, room in enumerate(rooms):
        left = 40 + GAP + index * (width + GAP)
        parts.append(
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" rx="4"'
            f' fill="{colour}" stroke="#8a94a3"/>'
        )
        parts.append(
            f'<text x="{left + width / 2:.1f}" y="{top + 22}" text-anchor="middle"'
            f' style="{STYLE}" fill="#1d2530">{html.escape(room)}</text>'
        )
    return parts


def _arrow(height: int) -> list[str]:
    """Down the left edge: imports go this way only."""
    return [
        f'<path d="M20 {GAP + 6} V{height - 18} M14 {height - 26} L20 {height - 16}'
        f' L26 {height - 26}" stroke="#5b6675" fill="none" stroke-width="2"/>'
    ]


def main(arguments: list[str]) -> int:
    """Print the floors; with `--write` draw the picture too."""
    floors = read_floors(ROOT / "pyproject.toml")
    print(as_text(floors))
    if "--write" in arguments:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(as_svg(floors), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
