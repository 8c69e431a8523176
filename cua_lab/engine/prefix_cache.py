"""Keys and values of finished conversations, found again by their longest common prefix.

A sequence is looked up by its cache ids: the prompt's ids with every image token replaced by a
negative number made from the image's content. So one comparison of integers covers both "the same
ids" and "the same images", and a prefix ends before a changed image, never inside it.

Invariant: the entries belong to one state of the weights; `flush` when those change.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading items of two arrays are equal."""
    size = min(len(a), len(b))
    differs = a[:size] != b[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size


@dataclass(frozen=True, slots=True)
class Entry:
    """One sequence: its cache ids (T,) and its KV (2, layers, kv_heads, T, head_dim)."""

    cache_ids: np.ndarray
    kv: Tensor

    @property
    def size(self) -> int:
        """Bytes."""
        return self.kv.numel() * self.kv.element_size() + self.cache_ids.nbytes


class PrefixCache:
    """Least recently used entries are dropped once they take more than `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, cache_ids: np.ndarray) -> tuple[int, Tensor | None]:
        """Length of the longest known prefix, and the KV of a sequence that begins with it."""
        best, found = 0, None
        for number, entry in self._entries.items():
            known = entry.cache_ids
            # One id tells most conversations apart; comparing them whole grows with both.
            if min(len(known), len(cache_ids)) <= best or known[best] != cache_ids[best]:
                continue
            length = common_prefix(known, cache_ids)
            if length > best:
                best, found = length, number
        if found is None:
            return 0, None
        self._entries.move_to_end(found)
        return best, self._entries[found].kv

    def put(self, cache_ids: np.ndarray, kv: Tensor) -> None:
        """Keep a sequence; what it extends is dropped, and it is not kept if already contained."""
        entry = Entry(cache_ids, kv)
        if entry.size > self.max_bytes:
            return
        for number, old in list(self._entries.items()):
            end = min(len(old.cache_ids), len(cache_ids)) - 1
            if end >= 0 and old.cache_ids[end] != cache_ids[end]:
                continue  # neither contains the other
            length = common_prefix(old.cache_ids, cache_ids)
            if length == len(cache_ids):
                self._entries.move_to_end(number)
                return
            if length == len(old.cache_ids):
                self._drop(number)
        self._entries[self._next] = entry
        self._next += 1
        self.bytes += entry.size
        while self.bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def flush(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0

    def _drop(self, number: int) -> None:
        self.bytes -= self._entries.pop(number).size
