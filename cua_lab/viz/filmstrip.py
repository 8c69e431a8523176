"""A film strip: an episode's screenshots in a row with what the policy did drawn on each.

Invariant: nothing is scaled but by whole numbers or smoothly downwards, and the marks are drawn in
black on a white halo, so they show on any screen; the card is opaque, so it reads in a dark theme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from cua_lab.errors import LabError
from cua_lab.pictures import to_rgb
from cua_lab.viz.frames import Frame, frames_of, key_summary
from cua_lab.viz.visible import visible_label

CELL = 224
GAP = 14
CAPTION = 50
MOST = 200
"""Characters of a caption that are laid out: two lines hold about 60."""
PAPER, INK, RULE = (251, 251, 249), (17, 17, 17), (140, 144, 152)
MISREAD = (196, 24, 24)
THOUGHT_LINE = 18
"""Pixels a line of a thought."""


def filmstrip(
    episode: Any, *, title: str = "", columns: int = 6, coordinate_space: str = "0-1000"
) -> Image.Image:
    """One picture: `columns` screenshots a row, the turn and its action under each.

    `episode`: an `Episode` of `cua_lab.rollout`, or a sequence of `Frame`.
    """
    listed = isinstance(episode, Sequence)
    frames = episode if listed else frames_of(episode, coordinate_space=coordinate_space)
    if not frames:
        raise LabError("a film strip needs at least one frame; this episode has no screenshots")
    columns = min(columns, len(frames))
    rows = -(-len(frames) // columns)
    top = GAP + (30 if title else 0)
    height = max(_fit(frame.image).height for frame in frames)
    said = THOUGHT_LINE * max(len(thought_lines(frame.thought)) for frame in frames)
    step = height + said + CAPTION + GAP
    strip = Image.new("RGB", (GAP + columns * (CELL + GAP), top + rows * step), PAPER)
    draw = ImageDraw.Draw(strip)
    if title:
        draw.text((GAP, GAP - 2), visible_label(title), fill=INK, font=_font(17))
    for index, frame in enumerate(frames):
        x = GAP + index % columns * (CELL + GAP)
        y = top + index // columns * step
        strip.paste(marked(frame), (x, y))
        draw.rectangle((x - 1, y - 1, x + CELL, y + _fit(frame.image).height), outline=RULE)
        _thought(draw, (x, y + height + 5), frame)
        _caption(draw, (x, y + height + said + 5), index, frame)
    return strip


def thought_lines(thought: str) -> list[list[tuple[int, str]]]:
    """A thought as lines of (place, character): one for each row of a transcript, and one for what
    follows from it."""
    lines: list[list[tuple[int, str]]] = [[]]
    words = thought.find(" ")
    for at, character in enumerate(thought):
        if character == "/" or at == words:
            lines.append([])
        else:
            lines[-1].append((at, character))
    return lines if thought else []


def _thought(draw: ImageDraw.ImageDraw, at: tuple[float, float], frame: Frame) -> None:
    """What it said; a misread cell is red, underlined, with what is on the screen behind it."""
    there = dict(frame.misread)
    font = _font(14, mono=True)
    for row, line in enumerate(thought_lines(frame.thought)):
        x, y = at[0], at[1] + row * THOUGHT_LINE
        for place, character in line:
            wrong = place in there
            draw.text((x, y), character, fill=MISREAD if wrong else INK, font=font)
            width = draw.textlength(character, font=font)
            if wrong:
                draw.line((x, y + 16, x + width, y + 16), fill=MISREAD, width=2)
                note = f"({there[place]})"
                draw.text((x + width, y), note, fill=MISREAD, font=font)
                width += draw.textlength(note, font=font)
            x += width


def marked(frame: Frame) -> Image.Image:
    """The screenshot at strip size with the click drawn on it."""
    image = _fit(frame.image)
    if frame.point is None:
        return image
    draw = ImageDraw.Draw(image)
    x, y = frame.point[0] * image.width, frame.point[1] * image.height
    for colour, width in (((255, 255, 255), 6), (INK, 2)):
        _cross(draw, x, y, r=9, colour=colour, width=width)
    return image


def _cross(
    draw: ImageDraw.ImageDraw,
    x: float,
    y: float,
    *,
    r: float,
    colour: tuple[int, int, int],
    width: int,
) -> None:
    draw.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=max(2, width // 2))
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        near, far = r / 2, r * 2
        draw.line(
            (x + dx * near, y + dy * near, x + dx * far, y + dy * far), fill=colour, width=width
        )


def _fit(image: Image.Image) -> Image.Image:
    """CELL pixels wide; small screens stay crisp, large ones are smoothed."""
    image = to_rgb(image)
    height = max(1, round(image.height * CELL / image.width))
    small = image.width <= CELL
    method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    return image.resize((CELL, height), method)


def _caption(draw: ImageDraw.ImageDraw, at: tuple[float, float], index: int, frame: Frame) -> None:
    label = visible_label(key_summary(frame.keys) if frame.keys else frame.label)
    lines = _wrap(draw, f"{index} · {label[:MOST] or 'no action'}", CELL, limit=2)
    draw.multiline_text(at, "\n".join(lines), fill=INK, font=_font(14), spacing=3)


def _wrap(draw: ImageDraw.ImageDraw, text: str, width: int, *, limit: int) -> list[str]:
    """Words in lines of at most `width` pixels, one wider than a line cut into pieces; the last of
    `limit` lines ends in an ellipsis."""

    def fits(line: str) -> bool:
        return draw.textlength(line, font=_font(14)) <= width

    lines = [""]
    for word in _pieces(text, fits):
        longer = f"{lines[-1]} {word}".strip()
        if fits(longer):
            lines[-1] = longer
        elif len(lines) == limit:
            while lines[-1] and not fits(lines[-1] + " …"):
                lines[-1] = lines[-1][:-1]
            lines[-1] += " …"
            break
        else:
            lines.append(word)
    return lines


def _pieces(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """The words of a text; one wider than a line in pieces that are not."""
    for word in text.split(" "):
        while not fits(word) and len(word) > 1:
            most = next(n for n in range(len(word) - 1, 0, -1) if n == 1 or fits(word[:n]))
            yield word[:most]
            word = word[most:]
        yield word


@cache
def _font(size: int, mono: bool = False) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Matplotlib's DejaVu Sans: the same glyphs on every machine."""
    from matplotlib import get_data_path

    name = "DejaVuSansMono" if mono else "DejaVuSans"
    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}.ttf", size)
