"""Several proxies on one real Valkey, which counts their slots, and upstreams that record their requests."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.proxy.harness import OK, Proxy, Request
from tests.support.valkey import Valkey


class Pod:
    """An origin that answers when the test allows it (`/p/quick` at once), and counts the most requests it had at once."""

    def __init__(self) -> None:
        self.running: list[Request] = []
        self.most = 0
        self.served: list[str] = []
        self.go_on = asyncio.Event()

    async def handle(self, request: Request) -> None:
        self.running.append(request)
        self.most = max(self.most, len(self.running))
        request.whole = await request.body()
        try:
            if request.target != "/p/quick":
                await self.go_on.wait()
            self.served.append(request.target)
        finally:
            self.running.remove(request)
        await request.wire.send(OK)


Fleet = Callable[..., Any]


def scores(valkey: Valkey) -> dict[str, int]:
    """What Redis counts."""
    found = valkey.admin.zrange("slb:{/p}:inflight", 0, -1, withscores=True)
    return {str(member): int(score) for member, score in cast("list[tuple[str, float]]", found)}


def queued(valkey: Valkey) -> int:
    return valkey.admin.hlen("slb:{/p}:queue:tickets")


def serving(proxy: Proxy) -> set[str]:
    """The members that a proxy's `/p` uses."""
    return {each.member for each in proxy.mirror.table.routes["/p"].serving}
