"""Each distinct head is parsed once or twice, and what is kept is bounded."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.upstreams.head_cache import HeadCache
from slb.upstreams.replies import MalformedReply, parse_reply
from tests.support.memory import kept_of


def held(cache: HeadCache[bytes]) -> int:
    """Bytes of the heads that are kept, and of what was made of them."""
    return sum(map(len, kept_of(cache, bytes)))


@given(st.lists(st.binary(min_size=1, max_size=60).map(lambda block: block * 20), max_size=120), st.integers(0, 9))
def test_the_cache_gives_what_parsing_gives_and_stays_within_its_bound(blocks: list[bytes], repeat: int) -> None:
    cache = HeadCache(bytes.upper, limit=8192)
    for block in [each for some in blocks for each in [some] * repeat]:
        assert cache[block] == block.upper()
        assert held(cache) <= 8192


@pytest.mark.parametrize("size", [1, 100, 1500])
def test_however_many_heads_repeat_what_is_kept_is_bounded(size: int) -> None:
    cache = HeadCache(bytes.upper, limit=8192)
    for number in range(300):
        for _ in range(3):
            cache[b"%0*d" % (size, number)]
        assert held(cache) <= 8192


def noting(parsed: list[bytes]) -> Callable[[bytes], bytes]:
    """A parser that notes what it is given."""

    def parse(block: bytes) -> bytes:
        parsed.append(block)
        return block

    return parse


def test_a_head_is_kept_from_its_second_coming_on() -> None:
    parsed: list[bytes] = []
    cache = HeadCache(noting(parsed))
    for _ in range(5):
        cache[b"a"]
    assert parsed == [b"a", b"a"]


def test_a_head_counts_for_twice_its_bytes_and_300_and_each_generation_may_have_half_of_the_limit() -> None:
    parsed: list[bytes] = []
    cache = HeadCache(noting(parsed), limit=6 * (2 * 500 + 300))
    one, two, three, four, five, six = (b"%0500d" % number for number in range(6))
    for block in (one, two, three, four, five, six):
        for _ in range(2):
            cache[block]
    parsed.clear()
    for block in (six, five, four, three):
        cache[block]
    assert parsed == []


def test_what_is_asked_for_again_and_again_outlives_what_comes_twice() -> None:
    parsed: list[bytes] = []
    cache = HeadCache(noting(parsed), limit=4000)
    for number in range(200):
        for _ in range(2):
            cache[b"%d" % number]
        cache[b"often"]
    assert parsed.count(b"often") == 2


def test_a_head_that_was_refused_is_parsed_and_refused_each_time() -> None:
    cache = HeadCache(parse_reply)
    for _ in range(3):
        with pytest.raises(MalformedReply):
            cache[b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
    assert cache[b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"].length == 1
