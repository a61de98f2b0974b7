"""The caches of the lab."""

import pytest

from bench.lab.model import LruCache


def test_the_longest_unasked_is_forgotten_first() -> None:
    cache = LruCache(2)
    cache.put(b"a")
    cache.put(b"b")
    assert cache.get(b"a")
    cache.put(b"c")
    assert list(cache) == [b"a", b"c"]
    assert not cache.get(b"b")
    assert len(cache) == 2


def test_putting_what_is_there_forgets_nothing_and_makes_it_the_last_to_go() -> None:
    cache = LruCache(2)
    for key in (b"a", b"b", b"a", b"c"):
        cache.put(key)
    assert list(cache) == [b"a", b"c"]


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a cache of 0"):
        LruCache(0)
