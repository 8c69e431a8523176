"""Why episodes failed, counted by cause.

Invariant: two errors are one cause exactly when they differ in numbers alone (a port, an address,
seconds); the words that are shown are those of the first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

LONGEST = 200
"""Characters of a cause."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


def kind_of(error: str | None) -> str:
    """The cause's name, the same for each of its errors."""
    return _NUMBERS.sub("#", _words(error))


def causes_of(errors: Iterable[str | None]) -> list[tuple[int, str]]:
    """(how often, an example) of each cause, the most frequent first."""
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for error in errors:
        kind = kind_of(error)
        counts[kind] += 1
        examples.setdefault(kind, _words(error))
    return [(count, examples[kind]) for kind, count in counts.most_common()]


def _words(error: str | None) -> str:
    return " ".join((error or "no reason given").split())[:LONGEST]
