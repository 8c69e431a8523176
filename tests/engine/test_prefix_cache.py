"""A prefix is found by ids and images; memory stays bounded."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cua_lab.engine.prefix_cache import PrefixCache, common_prefix


def entry(*cache_ids: int) -> tuple[np.ndarray, torch.Tensor]:
    """A sequence and a KV of 8 bytes a token."""
    return np.array(cache_ids, dtype=np.int64), torch.zeros(2, 1, 1, len(cache_ids), 1)


@given(st.lists(st.integers(-2, 2)), st.lists(st.integers(-2, 2)))
def test_the_common_prefix_is_what_a_loop_would_find(a: list[int], b: list[int]) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    found = common_prefix(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert found == (min(len(a), len(b)) if expected is None else expected)


def test_the_longest_of_several_prefixes_is_found() -> None:
    cache = PrefixCache(10**6)
    cache.put(*entry(1, 2, 3, 4))
    cache.put(*entry(1, 2, 9))
    length, kv = cache.longest(np.array([1, 2, 9, 9]))
    assert length == 3
    assert kv is not None
    assert kv.shape[3] == 3
    assert cache.longest(np.array([5])) == (0, None)


def test_a_conversation_that_grew_replaces_itself() -> None:
    cache = PrefixCache(10**6)
    cache.put(*entry(1, 2))
    cache.put(*entry(1, 2, 3))
    cache.put(*entry(1))
    assert len(cache) == 1
    assert cache.longest(np.array([1, 2, 3, 4]))[0] == 3


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(100)  # two sequences of three tokens: 48 bytes each
    for first in (1, 2):
        cache.put(*entry(first, 0, 0))
    cache.longest(np.array([1, 0]))
    cache.put(*entry(3, 0, 0))
    assert cache.bytes <= 100
    assert cache.longest(np.array([1]))[0] == 1
    assert cache.longest(np.array([2]))[0] == 0
    cache.flush()
    assert (len(cache), cache.bytes) == (0, 0)
