"""A cache that is bounded by what its values weigh, not by how many there are.

A count that holds 128 px screens (0.4 MB of patches each) holds 5 GB of 4K ones. Invariant: the
values kept weigh at most `max_bytes` together, and one that weighs more alone is not kept. Threads
may share a cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """The least recently used values are dropped first."""

    def __init__(self, max_bytes: int, weigh: Callable[[Value], int]) -> None:
        """`weigh` gives a value's bytes."""
        self.max_bytes = max_bytes
        self.bytes = 0
        """What is kept weighs."""
        self._weigh = weigh
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        """The value, which counts as used now, or `None`."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, unless it alone is too heavy."""
        weight = self._weigh(value)
        with self._lock:
            if key in self._kept:
                self.bytes -= self._kept.pop(key)[1]
            if weight > self.max_bytes:
                return
            self._kept[key] = (value, weight)
            self.bytes += weight
            while self.bytes > self.max_bytes:
                self.bytes -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0
