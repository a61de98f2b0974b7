"""1xx replies and the time an upstream has for its answer."""

import asyncio

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Request
from tests.support.waiting import eventually

PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"


async def lives(request: Request) -> None:
    """Three times as long as it has, with interim replies."""
    for _ in range(6):
        await request.wire.send(PROCESSING)
        await asyncio.sleep(0.5)
    await request.wire.send(OK)


async def final(proxies: MakeProxy, origins: MakeOrigin, **settings: str) -> tuple[int, float, float]:
    """The final status, and when its upstream's connection was due before and after a first 1xx."""
    hint, hinted = asyncio.Event(), asyncio.Event()

    async def reply(request: Request) -> None:
        await hint.wait()
        await request.wire.send(PROCESSING)
        await hinted.wait()
        await request.wire.send(OK)

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin, first_byte_timeout="40s", **settings)
    wire = await proxy.connect()
    asking = asyncio.create_task(wire.get("/"))
    await eventually(lambda: len(origin.requests) == 1)
    (client,) = proxy.server.clients.connections
    assert client.exchange is not None
    connection = client.exchange.connection
    assert connection is not None
    before = connection.due
    hint.set()
    assert (await asking).status == 102
    after = connection.due
    hinted.set()
    return (await wire.reply()).status, before, after


async def test_an_interim_reply_gives_its_upstream_the_time_for_the_first_byte_anew(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    status, before, after = await final(proxies, origins)
    assert status == 200
    assert after > before


async def test_a_route_may_have_it_that_interim_replies_gain_no_time(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    status, before, after = await final(proxies, origins, interim_extends="false")
    assert (status, after) == (200, before)


@pytest.mark.parametrize(("extends", "status"), [("true", 200), ("false", 504)])
async def test_an_upstream_that_sends_interim_replies_is_waited_for_unless_its_route_forbids_it(
    proxies: MakeProxy, origins: MakeOrigin, extends: str, status: int
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(lives), first_byte_timeout="1s", interim_extends=extends)
    wire = await proxy.connect()
    reply = await wire.get("/")
    while reply.status == 102:
        reply = await wire.reply()
    assert reply.status == status
    if status == 504:
        assert reply.reason == "upstream_timeout"


async def test_a_client_of_http_1_0_sees_no_interim_reply_and_is_waited_for_all_the_same(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(lives), first_byte_timeout="1s")
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.0\r\n\r\n")
    reply = await wire.reply()
    assert (reply.status, reply.body) == (200, b"ok")


async def test_the_time_of_the_whole_request_ends_however_many_interim_replies_come(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(lives), first_byte_timeout="1s", request_timeout="1s")
    wire = await proxy.connect()
    reply = await wire.get("/")
    while reply.status == 102:
        reply = await wire.reply()
    assert (reply.status, reply.reason) == (504, "upstream_timeout")
