"""A request that kills whatever serves it: how often it is sent, and to which upstreams."""

import asyncio
import socket

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire, answer_ok
from tests.proxy.test_retries import blocking
from tests.support.waiting import eventually


async def ends_by_it(request: Request) -> None:
    """An upstream that ends its connection on each `/killer`, and answers all else."""
    if request.target == "/killer":
        request.wire.reset()
    else:
        await answer_ok(request)


def killed(*origins: Origin) -> list[int]:
    """How often each got it."""
    return [sum(request.target == "/killer" for request in each.requests) for each in origins]


async def warm(proxy: Proxy, upstreams: list[Origin], connections: int = 1) -> None:
    """Leave so many idle connections to each."""
    wires = [await proxy.connect() for _ in range(connections)]
    for number, upstream in enumerate(upstreams):
        proxy.route(f"/{number}", upstream)
        replies = await asyncio.gather(*(wire.get(f"/{number}") for wire in wires))
        assert {reply.status for reply in replies} == {200}
    pools = proxy.server.context.pools
    await eventually(lambda: sum(len(pool.idle) for pool in pools) == len(upstreams) * connections)


@pytest.mark.parametrize(
    ("upstreams", "retries", "sent"),
    [
        (1, 1, [2]),
        (1, 10, [2]),
        (2, 0, [0, 2]),
        (2, 1, [1, 2]),
        (3, 1, [0, 1, 2]),
        (3, 2, [1, 1, 2]),
        (3, 10, [1, 1, 2]),
    ],
)
async def test_a_request_that_kills_idle_connections_is_repeated_once_at_one_upstream_and_then_goes_elsewhere(
    proxies: MakeProxy, origins: MakeOrigin, upstreams: int, retries: int, sent: list[int]
) -> None:
    """The first may have been given up before, as idle connections are. The next ones hardly were."""
    proxy = await proxies()
    all_of_them = [await origins(ends_by_it) for _ in range(upstreams)]
    wire = await proxy.connect()
    await warm(proxy, all_of_them, connections=3)
    proxy.route("/", *all_of_them, retries=str(retries))
    reply = await wire.get("/killer")
    assert (reply.status, reply.reason) == (502, "upstream_reset")
    assert sorted(killed(*all_of_them)) == sent


@pytest.mark.parametrize(("retries", "sent"), [(0, [0, 0, 1]), (1, [0, 1, 1]), (2, [1, 1, 1])])
async def test_a_request_that_kills_fresh_connections_reaches_no_upstream_twice(
    proxies: MakeProxy, origins: MakeOrigin, retries: int, sent: list[int]
) -> None:
    proxy = await proxies()
    three = [await origins(ends_by_it) for _ in range(3)]
    proxy.route("/", *three, retries=str(retries))
    assert (await proxy.get("/killer")).status == 502
    assert sorted(killed(*three)) == sent


async def test_a_post_that_kills_is_sent_once(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    two = [await origins(ends_by_it) for _ in range(2)]
    wire = await proxy.connect()
    await warm(proxy, two)
    proxy.route("/", *two, retries="10")
    await wire.send(b"POST /killer HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
    assert (await wire.reply()).status == 502
    assert sorted(killed(*two)) == [0, 1]


async def test_each_request_has_a_replacement_of_its_own(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def gives_up(request: Request) -> None:
        """As an upstream that closes idle connections just when they are used."""
        used.append(request.wire)
        if used.count(request.wire) == 2:
            request.wire.reset()
        else:
            await answer_ok(request)

    used: list[Wire] = []
    proxy = await proxies()
    origin = await origins(gives_up)
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(5)] == [200] * 5
    assert (sum(proxy.metrics.retries.values()), origin.connections) == (0, 5)


async def test_a_connection_that_ended_before_a_byte_was_written_does_not_count_as_the_one_given_up(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """One upstream's idle connection ends unsent, its fresh one is killed; the other's idle one was given up."""

    async def scripted(request: Request) -> None:
        if request.target == "/killer" and not survived.pop(0):
            request.wire.reset()
        else:
            await answer_ok(request)

    survived = [False, False, True]
    proxy = await proxies()
    two = [await origins(scripted) for _ in range(2)]
    await warm(proxy, two)
    proxy.route("/", *two)
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200
    (first,) = [each for each in two if each.requests[-1].target != "/"]
    with blocking(wire) as client, blocking(first.requests[0].wire) as idle:
        client.send(b"GET /killer HTTP/1.1\r\nHost: h\r\n\r\n")
        idle.shutdown(socket.SHUT_WR)
    assert (await wire.reply()).status == 200
    assert sorted(killed(*two)) == [1, 2]
    assert survived == []
