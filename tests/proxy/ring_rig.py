"""Routes by the ring through the whole proxy, and what the ring decides for each path."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import count

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import Handle, LiveUpstream
from slb.model import Upstream
from tests.proxy.harness import OK, MakeOrigin, Origin, Proxy, Reply, Request
from tests.support.waiting import eventually

PATHS = [f"/products/{number}" for number in range(40)]


class Pod:
    """An origin that answers when the test allows it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def handle(self, request: Request) -> None:
        await request.body()
        await self.go_on.wait()
        await request.wire.send(OK)


async def ill(request: Request) -> None:
    await request.wire.send(b"HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n")


def ring_of(origins: Iterable[Origin]) -> Ring:
    """What the proxy has to agree with."""
    return Ring.of(LiveUpstream(Upstream.of(origin.member)) for origin in origins)


def clockwise(origins: Sequence[Origin], key: str) -> list[Origin]:
    """As the ring has them for `key`: its owner first."""
    by_member = {origin.member: origin for origin in origins}
    return [by_member[upstream.member] for upstream in ring_of(origins).walk(key.encode())]


def owners(origins: Sequence[Origin]) -> dict[str, Origin]:
    """Whose each of PATHS is."""
    return {path: clockwise(origins, path)[0] for path in PATHS}


def path_of(origin: Origin, among: Sequence[Origin]) -> str:
    """One that is `origin`'s."""
    return next(path for path in (f"/products/x{n}" for n in count()) if clockwise(among, path)[0] is origin)


def policy_of(proxy: Proxy, path: str = "/") -> ConsistentHash:
    ring = proxy.mirror.table.routes[path].policy.ring
    assert ring is not None
    return ring


def decides(proxy: Proxy, path: str) -> bool:
    """Whether there is a ring for this route by now."""
    ring, before = policy_of(proxy, path), policy_of(proxy, path).counts.unready
    ring.pick(proxy.mirror.table.routes[path].view, b"any")
    return ring.counts.unready == before


BY_KEY_ALONE = {"policy": "consistent_hash", "load_signal": "off"}
"""How busy an upstream seems depends on how busy this machine is."""


async def lead(proxy: Proxy, origins: Sequence[Origin], path: str = "/", **settings: str) -> None:
    """Make `path` lead to these by a ring that is there on return."""
    proxy.route(path, *origins, **{**BY_KEY_ALONE, **settings})
    await eventually(lambda: decides(proxy, path), what="no ring was made")


async def who_serves(proxy: Proxy, origins: Sequence[Origin], paths: Iterable[str] = PATHS) -> dict[str, Origin]:
    """Each path, and the upstream that was asked for it."""
    for origin in origins:
        origin.requests.clear()
    for path in paths:
        assert (await proxy.get(path)).status == 200
    return {request.target: origin for origin in origins for request in origin.requests}


async def three(origins: MakeOrigin) -> list[Origin]:
    return [await origins() for _ in range(3)]


def with_its_probe(proxy: Proxy, origin: Origin) -> Handle:
    """`origin` has the one request more that an upstream gets which is passed over; to be released."""
    return Handle(proxy.mirror.upstreams[origin.member])


def ask(proxy: Proxy, path: str) -> "asyncio.Task[Reply]":
    return asyncio.create_task(proxy.get(path))
