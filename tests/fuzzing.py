"""Damaged input for the fuzz targets: bytes, JSON values and texts, made from ones that are right.

Seconds by day (the `normal` profile). By night `HYPOTHESIS_PROFILE=fuzz FUZZ_MINUTES=10` goes on
with new examples for ten minutes in all and keeps what failed, and what reached further, in the
folder that FUZZ_CORPUS names, for the next night.
"""

from __future__ import annotations

import contextlib
import copy
import os
import struct
import time
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

from hypothesis import settings
from hypothesis import strategies as st

TARGETS = 10
NIGHT_S = 60 * float(os.environ.get("FUZZ_MINUTES", "10")) / TARGETS
BY_NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"

small = st.sampled_from([0, 1, 2, 7, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1])
pieces = st.one_of(
    st.binary(max_size=12),
    small.map(lambda n: struct.pack(">I", n)),
    small.map(lambda n: struct.pack(">H", n & 0xFFFF)),
    st.sampled_from(
        [b"\0" * 64, b"\xff" * 64, b"\n", b"{", b"}", b"[", b'"', b"\\ud83d", b"&a", b"*a"]
    ),
)
edit = st.tuples(
    st.sampled_from(["cut", "drop", "insert", "replace", "repeat"]),
    st.integers(0, 2**16),
    st.integers(1, 40),
    pieces,
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=10)
    | st.sampled_from(
        ["\ud83d", "\0", "<|im_end|>", "</script>", 10**400, -1, 2**64, 1e308, 1e-320]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def few(examples: int) -> Callable[[Any], Any]:
    """So many examples by day; by night as many as there is time for."""
    return settings(max_examples=10**6 if BY_NIGHT else examples, deadline=None)


class Clock:
    """A target's share of the night."""

    def __init__(self) -> None:
        self._end = time.monotonic() + NIGHT_S if BY_NIGHT else float("inf")

    def check(self) -> None:
        """Called in each example; ends the target when its time is over."""
        if time.monotonic() > self._end:
            raise SkipTest  # what hypothesis lets through at once

    def run(self, attack: Callable[[], None]) -> None:
        """Try examples until there are enough of them, or the time is over."""
        with contextlib.suppress(SkipTest):
            attack()


@st.composite
def damaged(draw: st.DrawFn, right: bytes) -> bytes:
    """Some bytes of it are others, elsewhere, or gone."""
    data = right
    for kind, at, size, piece in draw(st.lists(edit, min_size=1, max_size=4)):
        at %= len(data) + 1
        if kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + size :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        else:
            data = data[:at] + data[at : at + size] * 3 + data[at + size :]
    return data


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(p for key, item in items for p in places(item, (*at, key)))]


@st.composite
def altered(draw: st.DrawFn, right: Any) -> Any:
    """One to three of its values, at any depth, are others or gone."""
    value = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = ("root", *draw(st.sampled_from(places(value))))
        holder: Any = {"root": value}
        for key in way:
            holder = holder[key]
        if last != "root" and draw(st.booleans()) and isinstance(holder, dict):
            del holder[last]
        else:
            holder[last] = draw(json_values)
            value = holder["root"] if last == "root" else value
    return value
