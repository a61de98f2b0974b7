"""Pools as an instance has them, without anything else of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from slb.addresses import AddressRules
from slb.loading import load_settings
from slb.model import RouteRecord
from slb.observe.metrics import Metrics
from slb.routing.mirror import Mirror
from slb.upstreams.call import Reply, call
from slb.upstreams.deadlines import Wheel
from slb.upstreams.head_cache import HeadCache
from slb.upstreams.outbox import Outbox
from slb.upstreams.pool import Pool, PoolParts, Pools
from slb.upstreams.replies import parse_reply
from slb.upstreams.tls import UpstreamTls
from tests.proxy.harness import Request
from tests.support.waiting import eventually, patience

LONG = 60.0
"""Seconds of a deadline that is not to pass."""


class Caller:
    """Calls upstreams. `own`: what its address rules take for listeners of slb."""

    def __init__(self, **settings: Any) -> None:
        loaded = load_settings(settings, {})
        self.own: list[tuple[str, int]] = []
        self.wheel = Wheel(time.monotonic)
        self._mirror = Mirror(loaded.route_settings, Random(7), time.monotonic, loaded.zone)
        parts = PoolParts(
            self.wheel,
            Outbox(),
            HeadCache(parse_reply),
            AddressRules((), lambda: self.own),
            UpstreamTls(loaded, Metrics()),
        )
        self._pools = Pools(self._mirror, parts, loaded)
        self._members: set[str] = set()
        self._made: list[Pool] = []
        self.wheel.start(asyncio.get_running_loop())

    def pool(self, member: str) -> Pool:
        """That of one more upstream."""
        self._members.add(member)
        self._mirror.update({"/": RouteRecord(frozenset(self._members), {})}, {})
        upstream = self._mirror.upstream(member)
        assert upstream is not None
        self._made.append(self._pools.of(upstream))
        return self._made[-1]

    async def call(
        self, pool: Pool, method: bytes = b"GET", target: bytes = b"/", timeout: float = LONG, **more: Any
    ) -> Reply:
        """A call that takes small replies, and all the time it needs."""
        options = {"timeout": patience(timeout), "connect_timeout": LONG, "most_bytes": 1000, **more}
        return await call(pool, method, target, **options)

    async def stop(self) -> None:
        """Every place that was taken is given back."""
        self._pools.close()
        for pool in self._made:
            await eventually(lambda pool=pool: pool.open == 0, what="a connection was not given back")  # type: ignore[misc]
        self.wheel.stop()


MakeCaller = Callable[..., Awaitable[Caller]]


async def head_and_no_end(request: Request) -> None:
    """An upstream whose reply goes on for ever."""
    await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await request.wire.send(b"1\r\nx\r\n")
        await asyncio.sleep(0.01)
