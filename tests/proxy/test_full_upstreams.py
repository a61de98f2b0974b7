"""An upstream that has all the connections it may have is passed over for others that have room."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from slb.balance.upstream import LiveUpstream
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request
from tests.support.waiting import eventually


class Busy:
    """What an origin does that holds every request until `go_on`; requests for `/quick` it answers at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, request: Request) -> None:
        request.whole = await request.body()
        if request.target != "/quick":
            await self.go_on.wait()
        await request.wire.send(OK)


def gets(proxy: Proxy, count: int) -> "list[asyncio.Task[Reply]]":
    return [asyncio.create_task(proxy.get("/")) for _ in range(count)]


def seen(*origins: Origin) -> list[int]:
    return [len(each.requests) for each in origins]


Caps = pytest.mark.parametrize("cap", [{}, {"max_inflight": "50"}], ids=["uncounted", "counted"])


@Caps
@pytest.mark.parametrize("policy", ["round_robin", "p2c", "least_inflight", "consistent_hash"])
async def test_all_connections_of_a_route_are_used_before_anybody_is_refused(
    proxies: MakeProxy, origins: MakeOrigin, policy: str, cap: dict[str, str]
) -> None:
    proxy = await proxies(max_upstream_connections=2, client_detail="full")
    busy = Busy()
    three = [await origins(busy) for _ in range(3)]
    proxy.route("/", *three, policy=policy, retries="0", **cap)
    running = gets(proxy, 6)
    await eventually(lambda: seen(*three) == [2, 2, 2])
    refused = await proxy.get("/")
    assert (refused.status, refused.reason, refused.one("Retry-After")) == (503, "overloaded", "1")
    assert any(each.member in refused.body.decode() for each in three)
    busy.go_on.set()
    assert [(await each).status for each in running] == [200] * 6
    assert sum(proxy.metrics.retries.values()) == 0
    assert {line["attempts"] for line in proxy.logged()} == {1}
    assert all("failed" not in line for line in proxy.logged())


async def test_the_slot_of_an_upstream_that_was_passed_over_is_given_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies(max_upstream_connections=1)
    busy = Busy()
    two = [await origins(busy) for _ in range(2)]
    proxy.route("/", *two, max_inflight="8", policy="round_robin")
    running = gets(proxy, 2)
    await eventually(lambda: seen(*two) == [1, 1])
    for _ in range(20):
        assert (await proxy.get("/")).reason == "overloaded"
    gate = proxy.gates.known("/")
    assert gate is not None
    assert +gate.lane.held == {each.member: 1 for each in two}
    assert proxy.inflight() == 2
    busy.go_on.set()
    assert [(await each).status for each in running] == [200, 200]
    await eventually(lambda: not +gate.lane.held)


async def test_a_body_that_came_meanwhile_arrives_whole_at_the_one_that_has_room(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies(max_upstream_connections=1)
    busy, quick = Busy(), Busy()
    quick.go_on.set()
    full, free = await origins(busy), await origins(quick)
    proxy.route("/", full, policy="consistent_hash")
    running = gets(proxy, 1)
    await eventually(lambda: seen(full) == [1])
    proxy.route("/", full, free, policy="round_robin")
    wires = [await proxy.connect() for _ in range(2)]
    for wire in wires:  # one after the other: round robin brings one of them to the full one
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nfirst")
        await wire.send(b" half")
        assert (await wire.reply()).status == 200
    assert [request.whole for request in free.requests] == [b"first half"] * 2
    busy.go_on.set()
    assert (await running[0]).status == 200


async def test_an_attempt_after_a_failure_passes_over_those_that_are_full_and_never_goes_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def fail(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 503 X\r\nContent-Length: 3\r\n\r\nbad")

    proxy = await proxies(max_upstream_connections=1)
    busy = Busy()
    full, bad = await origins(busy), await origins(fail)
    proxy.route("/", full)
    running = gets(proxy, 1)
    await eventually(lambda: seen(full) == [1])
    proxy.route("/", full, bad, retries="5")
    replies = [await proxy.get("/") for _ in range(4)]
    assert {each.status for each in replies} == {503}
    # The request that passed over the full one has none left, and gets what the bad one sent.
    assert b"bad" in {each.body for each in replies}
    assert len(bad.requests) == 4
    busy.go_on.set()
    assert (await running[0]).status == 200


async def test_a_client_that_leaves_while_its_request_is_passed_on_leaves_nothing(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await proxies(max_upstream_connections=1)
    busy = Busy()
    full, free = await origins(busy), await origins()
    proxy.route("/", full)
    running = gets(proxy, 1)
    await eventually(lambda: seen(full) == [1])
    proxy.route("/", full, free, policy="round_robin")
    pools = proxy.server.context.pools
    real = pools.full

    def leave_now(upstreams: Sequence[LiveUpstream]) -> list[LiveUpstream]:
        for connection in proxy.server.clients.connections:
            if connection.exchange is not None and connection.exchange.connection is None:
                connection.transport.abort()
        return real(upstreams)

    monkeypatch.setattr(pools, "full", leave_now)
    for _ in range(2):  # one of them is for the full one
        wire = await proxy.connect()
        await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        with suppress(ConnectionError):
            await wire.reader.read()
    await eventually(lambda: proxy.metrics.clients.disconnects == 1)
    assert proxy.inflight() == 1
    assert len(free.requests) == 1
    busy.go_on.set()
    assert (await running[0]).status == 200


async def test_requests_of_one_turn_get_no_more_connections_than_their_upstream_may_have(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """None of the connections has begun to be made when the next request asks whether there is room."""
    proxy = await proxies(max_upstream_connections=2)
    busy = Busy()
    origin = await origins(busy)
    proxy.route("/", origin)
    wires = [await proxy.connect() for _ in range(6)]
    for wire in wires:
        wire.writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(proxy.logged()) == 4)
    assert {line["reason"] for line in proxy.logged()} == {"overloaded"}
    busy.go_on.set()
    assert sorted([(await wire.reply()).status for wire in wires]) == [200, 200, 503, 503, 503, 503]
    assert origin.connections == 2
