"""What can be wrong with an instruction's words: length, language, the answer inside.

Languages are told apart by script (Latin, Han, Kana, Hangul, Cyrillic, Arabic, ...), which is exact
and enough to find Chinese rows in an English file. It cannot tell English from French: on
instructions of two to six words no detector can, and a wrong rejection costs more than it saves.

Invariant: quoted words do not count ("Click '设置'" is an English instruction).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from cua_lab.dataset.spaces import Point, Size, Space, box_to_unit, point_to_unit
from cua_lab.errors import LabError

SCRIPTS: dict[str, frozenset[str]] = {
    "en": frozenset({"LATIN"}),
    "de": frozenset({"LATIN"}),
    "fr": frozenset({"LATIN"}),
    "es": frozenset({"LATIN"}),
    "pt": frozenset({"LATIN"}),
    "it": frozenset({"LATIN"}),
    "vi": frozenset({"LATIN"}),
    "tr": frozenset({"LATIN"}),
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    "ko": frozenset({"HANGUL", "CJK"}),
    "ru": frozenset({"CYRILLIC"}),
    "uk": frozenset({"CYRILLIC"}),
    "ar": frozenset({"ARABIC"}),
    "fa": frozenset({"ARABIC"}),
    "he": frozenset({"HEBREW"}),
    "el": frozenset({"GREEK"}),
    "hi": frozenset({"DEVANAGARI"}),
    "th": frozenset({"THAI"}),
}
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|“[^”]*”|‘[^’]*’|«[^»]*»|「[^」]*」|`[^`]*`")
_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"
_PAIR = re.compile(rf"{_NUMBER}\s*(?:px)?\s*[,;/ x×]\s*(?:and\s+)?(?:y\s*[=:]\s*)?{_NUMBER}", re.I)
_CALL = re.compile(
    r"pyautogui\s*\.|<tool_call>|[\"']?(?:coordinates|bbox)[\"']?\s*[:=]\s*[\[({]|[\"']action[\"']\s*:",
    re.I,
)


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0].removesuffix("-UNIFIED")


def _spoken(letter: str) -> str:
    return "Han" if _script(letter) == "CJK" else _script(letter).title()


def check_languages(languages: tuple[str, ...]) -> None:
    """Refuse a language whose script is not in the table."""
    for language in languages:
        if language not in SCRIPTS:
            raise LabError(f"language is {language!r}; known: {', '.join(sorted(SCRIPTS))}")


def language_problem(text: str, languages: tuple[str, ...]) -> str | None:
    """Why the instruction is not in any of the languages, by script; `None` where it may be."""
    if text.isascii() and any("LATIN" in SCRIPTS[language] for language in languages):
        return None
    letters = [letter for letter in _QUOTED.sub(" ", text) if letter.isalpha()]
    if not letters:
        return None
    allowed = frozenset().union(*(SCRIPTS[language] for language in languages))
    foreign = [letter for letter in letters if _script(letter) not in allowed]
    if 2 * len(foreign) <= len(letters):
        return None
    return (
        f"{len(foreign)} of {len(letters)} letters are {_spoken(foreign[0])},"
        f" not the script of {' or '.join(languages)}"
    )


def leak(
    text: str,
    point: Point | None,
    box: tuple[float, float, float, float] | None,
    space: Space | None,
    size: Size | None,
) -> str | None:
    """The piece of the instruction that gives the answer away, or `None`.

    A leak is a piece of an action's code, or a pair of numbers that names the target point in any
    of the three spaces (within 1% of the screen).
    """
    call = _CALL.search(text)
    if call:
        return f"holds a piece of an action, {call.group(0)!r}"
    if point is None or space is None or (space == "pixels" and size is None):
        return None
    x, y = point_to_unit(point, space, size)
    corners = [(x, y)]
    if box is not None:
        x0, y0, x1, y1 = box_to_unit(box, space, size)
        corners += [(x0, y0), (x1, y1), ((x0 + x1) / 2, (y0 + y1) / 2)]
    for match in _PAIR.finditer(text):
        a, b = float(match.group(1)), float(match.group(2))
        readings = [(a, b)] if "." in match.group(0) else []
        if a + b >= 20:  # "page 3, 4" is not the top left corner
            readings.append((a / 1000, b / 1000))
            if size is not None:
                readings.append((a / size[0], b / size[1]))
        for u, v in readings:
            if any(abs(u - cx) <= 0.01 and abs(v - cy) <= 0.01 for cx, cy in corners):
                return f"names the target's place, {match.group(0)!r}"
    return None


def normalise(text: str) -> str:
    """Case, white space and trailing punctuation removed: for telling duplicates."""
    return " ".join(text.casefold().split()).rstrip(" .!?。！？")
