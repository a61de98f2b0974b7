"""Limits: each with the name of what it protects."""

import asyncio

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Request, Wire
from tests.support.waiting import eventually, settled


async def test_a_connection_too_many_is_503(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_connections=2)
    proxy.route("/", origin)
    first, second, third = [await proxy.connect() for _ in range(3)]
    reply = await third.reply()
    assert (reply.status, reply.reason, reply.one("Retry-After")) == (503, "overloaded", "1")
    assert await third.ended()
    assert [(await wire.get("/")).status for wire in (first, second)] == [200, 200]
    first.close()
    await eventually(lambda: proxy.metrics.clients.connections() == 1)
    assert (await proxy.get("/")).status == 200


async def test_refused_connections_keep_no_other_out(proxies: MakeProxy, origin: Origin) -> None:
    """They may stay for some seconds to read their answer."""
    proxy = await proxies(max_connections=1)
    proxy.route("/", origin)
    first = await proxy.connect()
    refused = [await proxy.connect() for _ in range(3)]
    assert [(await wire.reply()).reason for wire in refused] == ["overloaded"] * 3
    assert proxy.metrics.clients.connections() == 1
    first.close()
    await eventually(lambda: proxy.metrics.clients.connections() == 0)
    assert (await proxy.get("/")).status == 200


async def test_of_refused_connections_no_more_linger_than_may_be_served(proxies: MakeProxy) -> None:
    proxy = await proxies(max_connections="2")
    for _ in range(2):
        await (await proxy.connect()).get("/")
    refused = [await proxy.connect() for _ in range(6)]
    for wire in refused:
        assert (await wire.reply()).reason == "overloaded"
    assert len(proxy.server.clients.places.rejected) == 2
    assert sum([await is_gone(wire) for wire in refused]) == 4


async def is_gone(wire: Wire) -> bool:
    """Whether what is sent is not taken any more."""
    try:
        for _ in range(3):
            await wire.send(b"x")
            await settled(lambda: 0, still=0.02)
    except ConnectionError:
        return True
    return False


async def test_one_peer_may_not_take_all_connections(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_connections_per_peer=1)
    proxy.route("/", origin)
    await proxy.connect()
    assert (await (await proxy.connect()).reply()).reason == "overloaded"
    reader, writer = await asyncio.open_connection(*proxy.address, local_addr=("127.0.0.9", 0))
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in await reader.read()
    writer.close()


async def test_a_connection_ends_after_the_requests_it_may_carry(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_requests_per_connection=2)
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).one("Connection") for _ in range(2)] == [None, "close"]
    assert await wire.ended()


async def test_an_upstream_gets_no_more_connections_than_it_may_have(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def hold(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    go_on = asyncio.Event()
    proxy = await proxies(max_upstream_connections=2)
    origin = await origins(hold)
    proxy.route("/", origin)
    running = [asyncio.create_task(proxy.get("/")) for _ in range(2)]
    await eventually(lambda: len(origin.requests) == 2)
    assert (await proxy.get("/")).reason == "overloaded"
    go_on.set()
    assert [reply.status for reply in await asyncio.gather(*running)] == [200, 200]
    assert (await proxy.get("/")).status == 200


async def test_a_trusted_caller_may_set_a_deadline(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def silence(request: Request) -> None:
        await request.wire.ended()

    proxy = await proxies(trusted_proxies="127.0.0.1/32")
    origin = await origins(silence)
    proxy.route("/", origin)
    assert (await proxy.get("/", X_Request_Timeout="100ms")).reason == "upstream_timeout"
    assert origin.requests[0].one("X-Request-Timeout") is None
    assert (await proxy.get("/", X_Request_Timeout="soon")).reason == "bad_request"


async def test_a_strangers_deadline_goes_no_further(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    assert (await proxy.get("/", X_Request_Timeout="soon")).status == 200
    assert origin.requests[0].one("X-Request-Timeout") is None
