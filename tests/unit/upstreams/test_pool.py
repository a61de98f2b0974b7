"""The connections to one upstream: which is taken first, and what a failed connect gives back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from slb.upstreams.pool import ConnectFailed, Pool
from tests.unit.balance.upstreams import upstreams


def pool_of(limit: int) -> Pool:
    """That of an upstream to which no connection may be made."""
    parts = SimpleNamespace(
        wheel=SimpleNamespace(arm=lambda connection, due: None),
        outbox=None,
        reply_heads=None,
        address_rules=SimpleNamespace(refusal=lambda address, port: "forbidden"),
        tls=None,
    )
    settings = SimpleNamespace(
        max_head=1, upstream_keepalive=2, upstream_keepalive_timeout=1.0, max_upstream_connections=limit
    )
    (upstream,) = upstreams("a")
    upstream.spec = cast("Any", SimpleNamespace(host="127.0.0.1", port=1, scheme="http", member="127.0.0.1:1"))
    return Pool(upstream, cast("Any", parts), cast("Any", settings))


def connection() -> Any:
    return SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: False), close=lambda: None)


async def test_a_connect_that_fails_gives_its_reservation_back() -> None:
    pool = pool_of(limit=1)
    pool.reserve()
    assert not pool.has_room
    with pytest.raises(ConnectFailed, match="forbidden"):
        await pool.connect(5.0)
    assert pool.has_room


def test_the_idle_connection_that_was_used_last_is_taken_first() -> None:
    pool = pool_of(limit=0)
    older, newer = connection(), connection()
    pool.put(older, 1.0)
    pool.put(newer, 2.0)
    assert [pool.take(), pool.take(), pool.take()] == [newer, older, None]


def test_where_the_upstream_has_left_no_connection_is_kept() -> None:
    pool, closed = pool_of(limit=0), []
    idle, lent = connection(), connection()
    for each in (idle, lent):
        each.close = lambda each=each: closed.append(each)
    pool.put(idle, 1.0)
    pool.close()
    assert closed == [idle]
    pool.put(lent, 2.0)
    assert closed == [idle, lent]
    assert lent not in pool.idle
