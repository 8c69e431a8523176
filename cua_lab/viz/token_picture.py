"""A member's tokens as one picture, coloured by role: for readers whose page strips styles.

Invariant: every run of tokens opens a line with its turn and role in words, and what does not fit
is counted in the last line. The card is opaque, so it reads in a dark theme too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from PIL import Image, ImageColor, ImageDraw, ImageFont

from cua_lab.viz.visible import visible, visible_label

WIDTH, LINE, GUTTER, EDGE, SIZE = 1440, 36, 230, 16, 22
"""Pixels; it is shown at half its size, so that it is sharp on every screen."""
MOST_LINES = 22
LONGEST = 120
"""Characters of one token; a system prompt can be a single one."""
PAPER, INK, MARK = "#ffffff", "#14161a", "#4a4f58"
FILL = {
    "prompt": "#eef0f3",
    "policy": "#ffe08a",
    "thought": "#fff3c9",
    "scaffold": "#d9e8fb",
    "image": "#d8f3dc",
    "resynced": "#fbdcec",
}


def _blends() -> Iterator[tuple[int, int, int]]:
    """Each ground, and the edges of letters on it."""
    ink = ImageColor.getrgb(INK)
    for ground in (PAPER, *FILL.values()):
        for share in (0, 0.33, 0.67):
            mixed = [
                round(a + share * (b - a))
                for a, b in zip(ImageColor.getrgb(ground), ink, strict=False)
            ]
            yield mixed[0], mixed[1], mixed[2]


PALETTE = (*_blends(), ImageColor.getrgb(MARK)[:3], ImageColor.getrgb(INK)[:3])
"""The picture's colours: 23, so that it is stored in about 40 kB."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A token on a line."""

    text: str
    look: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class _Line:
    """One line: what stands in the gutter, and the tokens."""

    head: str
    pieces: tuple[_Piece, ...]


def token_picture(member: dict[str, Any], vocab: dict[str, str]) -> Image.Image:
    """The beginning of a payload's member, at most `MOST_LINES` lines of it."""
    lines: list[_Line] = []
    shown = 0
    for index, (role, start, end, turn, _) in enumerate(member["segments"]):
        words = list(_words(member, vocab, index))
        wrapped = list(_wrapped(f"turn {turn} {role}", words))
        if len(lines) + len(wrapped) >= MOST_LINES:
            left = member["counts"]["total"] - shown
            lines.append(_Line(f"… {left} more tokens", ()))
            break
        lines += wrapped
        shown += end - start
    return _drawn(lines)


def _words(member: dict[str, Any], vocab: dict[str, str], index: int) -> Iterator[tuple[str, str]]:
    """(text, look) of each token of a segment."""
    role, start, end, *_ = member["segments"][index]
    if role == "image":
        image = member["images"].get(str(index))
        size = f", {image['width']} × {image['height']} px" if image else ""
        label = f" → {image['label']}" if image and image["label"] else ""
        yield visible_label(f"▣ {end - start} image tokens{size}{label}"), "image"
        return
    thinking = {i for run in member.get("thoughts", ()) for i in range(*run)}
    for position in range(start, end):
        text = vocab[str(member["ids"][position])]
        shown = visible(text[:LONGEST])
        if len(text) > LONGEST:
            shown += f"… {len(text)} characters, 1 token"
        yield shown, "thought" if position in thinking else role


def _wrapped(head: str, words: list[tuple[str, str]]) -> Iterator[_Line]:
    x = float(GUTTER)
    pieces: list[_Piece] = []
    for text, look in words:
        for part in _cut(text):
            width = _font().getlength(part) + 6
            if x + width > WIDTH - EDGE and pieces:
                yield _Line(head, tuple(pieces))
                head, x, pieces = "", float(GUTTER), []
            pieces.append(_Piece(part, look, x, width))
            x += width + 4
    yield _Line(head, tuple(pieces))


def _cut(text: str) -> Iterator[str]:
    """A text wider than a line in pieces that fit; the font has one width for all letters."""
    most = int((WIDTH - EDGE - GUTTER - 6) / _font().getlength("m"))
    for at in range(0, len(text), most):
        yield text[at : at + most]


def _drawn(lines: list[_Line]) -> Image.Image:
    image = Image.new("RGB", (WIDTH, len(lines) * LINE + 2 * EDGE), PAPER)
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        y = EDGE + row * LINE
        draw.text((EDGE, y + 3), line.head, fill=INK, font=_font())
        for piece in line.pieces:
            box = (piece.x, y, piece.x + piece.width, y + LINE - 6)
            draw.rectangle(box, fill=FILL[piece.look])
            if piece.look in ("policy", "thought"):  # trained: underlined, so colour is not needed
                draw.line((box[0], box[3], box[2], box[3]), fill=MARK, width=4)
            draw.text((piece.x + 3, y + 3), piece.text, fill=INK, font=_font())
    return image


@cache
def _font() -> ImageFont.FreeTypeFont:
    """Matplotlib's DejaVu Sans Mono: the same glyphs on every machine."""
    from matplotlib import get_data_path

    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSansMono.ttf", SIZE)
