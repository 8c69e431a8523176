"""Progress bars: drawn here, or told to the process that draws them.

A stage in a process of its own has no screen. Its bars are lines of JSON on its standard output,
`{"open": 3, "what": "game: GRPO", "total": 80, ...}`, `{"at": 3, "n": 12, "shown": {...}}`,
`{"close": 3}`, and the run's process draws them below its own. Invariant: a bar changes nothing
about what a run computes, and a line that cannot be read or written is no reason to stop.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, BinaryIO

EVERY_S = 0.2
"""At most so often a bar is told anew."""

_told: BinaryIO | None = None
_counter = itertools.count()


def bar(what: str, total: int, unit: str, *, initial: int = 0, position: int | None = None) -> Any:
    """A progress bar with the time left; silent where TQDM_DISABLE says so."""
    from tqdm.auto import tqdm

    if _told is not None:
        return ToldBar(_told, what=what, total=total, unit=unit, initial=initial)
    interval = 0.1 if sys.stderr.isatty() else 10.0  # a log file needs no animation
    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        unit=unit,
        mininterval=interval,
        dynamic_ncols=True,
        position=position,
        disable=os.environ.get("TQDM_DISABLE") == "1",  # tqdm's notebook bar does not ask
    )


def tell_bars(stream: BinaryIO) -> None:
    """From now on `bar` tells this stream instead of drawing."""
    global _told
    _told = stream


def tell(stream: BinaryIO, event: Mapping[str, Any]) -> None:
    """One line; a reader that is gone is the death of this process soon enough."""
    with suppress(OSError, ValueError):
        stream.write(json.dumps(event).encode() + b"\n")
        stream.flush()


class ToldBar:
    """As much of tqdm's bar as a run uses, told instead of drawn."""

    def __init__(self, stream: BinaryIO, *, initial: int = 0, **about: Any) -> None:
        self.n = initial
        self._stream, self._name = stream, next(_counter)
        self._shown: dict[str, str] = {}
        self._told_at = monotonic()
        tell(stream, {"open": self._name, "initial": initial, **about})

    def __enter__(self) -> ToldBar:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tell()
        tell(self._stream, {"close": self._name})

    def update(self, n: int = 1) -> None:
        self.n += n
        if monotonic() - self._told_at >= EVERY_S:
            self._tell()

    def set_postfix(
        self, shown: Mapping[str, Any] | None = None, refresh: bool = True, **more: Any
    ) -> None:
        self._shown = {key: str(value) for key, value in {**(shown or {}), **more}.items()}

    def _tell(self) -> None:
        self._told_at = monotonic()
        tell(self._stream, {"at": self._name, "n": self.n, "shown": self._shown})


class DrawnBars:
    """The bars that one other process tells of."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._bars: dict[int, Any] = {}

    def hear(self, event: Mapping[str, Any]) -> None:
        """Draw what an event says; one of another kind is none of a bar's."""
        if "open" in event:
            self._bars[event["open"]] = bar(
                event["what"],
                event["total"],
                event["unit"],
                initial=event["initial"],
                position=self.position,
            )
        elif (found := self._bars.get(event.get("at", -1))) is not None:
            found.set_postfix(event["shown"], refresh=False)
            found.update(event["n"] - found.n)
        elif (found := self._bars.pop(event.get("close", -1), None)) is not None:
            found.close()

    def close(self) -> None:
        """Of a process that has ended, however it did."""
        for found in self._bars.values():
            found.close()
        self._bars.clear()
