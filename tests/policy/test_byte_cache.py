"""Caches are bounded by weight."""

from cua_lab.policy.byte_cache import ByteCache


def test_the_least_recently_used_goes_when_the_values_weigh_too_much() -> None:
    cache: ByteCache[str, bytes] = ByteCache(10, len)
    cache.put("a", bytes(4))
    cache.put("b", bytes(4))
    assert cache.get("a") == bytes(4)
    cache.put("c", bytes(4))
    assert (cache.get("b"), len(cache), cache.bytes) == (None, 2, 8)


def test_a_value_too_heavy_for_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache: ByteCache[str, bytes] = ByteCache(10, len)
    cache.put("a", bytes(4))
    cache.put("b", bytes(11))
    assert (cache.get("b"), cache.get("a")) == (None, bytes(4))


def test_a_value_put_again_is_weighed_once() -> None:
    cache: ByteCache[str, bytes] = ByteCache(10, len)
    cache.put("a", bytes(4))
    cache.put("a", bytes(6))
    assert cache.bytes == 6
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)
