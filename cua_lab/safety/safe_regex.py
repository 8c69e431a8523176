"""Regular expressions that a policy file may hold: those whose time cannot explode.

Invariant: a pattern that `compiled` returns has no repeat inside of a repeat, no more than a few
open repeats, and neither look-around nor back references; on the bounded texts of this room it
ends at once. (Catastrophic backtracking: https://www.regular-expressions.info/catastrophic.html)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Python has no public parser of its patterns; 3.11 and 3.12 have this one, and a test holds it.
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_OPEN = 3
"""Open repeats (`*`, `+`, `{3,}`) in a row: each multiplies the time by the length of the text."""
LONGEST_PATTERN = 500
_REFUSED = {
    codes.ASSERT: "look-around",
    codes.ASSERT_NOT: "look-around",
    codes.GROUPREF: "a back reference",
    codes.GROUPREF_EXISTS: "a conditional group",
}


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, case ignored; `ValueError` says what is wrong with it."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"it has {len(pattern)} characters; at most {LONGEST_PATTERN}")
    try:
        tree = parser.parse(pattern, re.IGNORECASE)
        made = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"it is no regular expression: {error}") from error
    opened = sum(_repeats(tree, inside=False))
    if opened > MOST_OPEN:
        raise ValueError(
            f"it has {opened} open repeats (* or +); at most {MOST_OPEN}: write {{0,40}} instead"
        )
    return made


def _repeats(tree: Any, *, inside: bool) -> Iterator[int]:
    """1 for each open repeat; refuses what may take exponential time. `tree` is sre's parse."""
    for code, value in tree:
        if code in _REFUSED:
            raise ValueError(f"it has {_REFUSED[code]}, whose time has no bound")
        repeat = code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
        if repeat:
            low, high, inner = value
            if inside and high != low and high > 1:
                raise ValueError("it has a repeat inside of a repeat, such as (a+)+")
            yield int(high is codes.MAXREPEAT)
            yield from _repeats(inner, inside=inside or high > 1)
        else:
            for inner in _inner(code, value):
                yield from _repeats(inner, inside=inside)


def _inner(code: Any, value: Any) -> list[Any]:
    """The parts of a group or of alternatives."""
    if code is codes.SUBPATTERN:
        return [value[-1]]
    if code is codes.BRANCH:
        return list(value[1])
    return [value] if code is codes.ATOMIC_GROUP else []
