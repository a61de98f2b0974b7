"""A request reaches its upstream and its reply comes back: bodies, connections, order."""

import asyncio
import gc
import hashlib

import pytest

from slb.proxy.exchange import Exchange
from slb.proxy.upload import Upload
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request
from tests.support.waiting import eventually

BIG = bytes(range(256)) * 16384  # 4 MiB: more than any buffer on the way


def chunked(payload: bytes, size: int = 60_000) -> bytes:
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def test_requests_of_one_client_share_one_upstream_connection(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    for _ in range(5):
        assert (await wire.get("/")).body == b"ok"
    assert (len(origin.requests), origin.connections) == (5, 1)


async def test_clients_that_come_one_after_another_share_one_upstream_connection(
    proxy: Proxy, origin: Origin
) -> None:
    for _ in range(3):
        assert (await proxy.get("/")).status == 200
    assert origin.connections == 1


async def test_upstreams_are_served_in_turn(proxies: MakeProxy, origins: MakeOrigin) -> None:
    three = [await origins() for _ in range(3)]
    proxy = await proxies()
    proxy.route("/", *three)
    wire = await proxy.connect()
    for _ in range(9):
        await wire.get("/")
    assert [len(each.requests) for each in three] == [3, 3, 3]


async def test_a_counted_body_arrives_whole_both_ways(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def echo(request: Request) -> None:
        body = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    proxy = await proxies()
    proxy.route("/", await origins(echo))
    wire = await proxy.connect()
    upload = asyncio.create_task(
        wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(BIG), BIG))
    )
    reply = await wire.reply()
    await upload
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(BIG).digest()
    assert reply.one("Content-Length") == str(len(BIG))


async def test_what_a_request_held_is_free_as_soon_as_it_has_ended(proxy: Proxy) -> None:
    wire = await proxy.connect()
    gc.collect()
    gc.disable()
    try:
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
        assert (await wire.reply()).status == 200
        assert not [each for each in gc.get_objects() if isinstance(each, Exchange | Upload)]
    finally:
        gc.enable()


async def test_a_chunked_body_arrives_whole_both_ways(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def echo(request: Request) -> None:
        body = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(body, 7_777))

    origin = await origins(echo)
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    upload = asyncio.create_task(
        wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BIG))
    )
    reply = await wire.reply()
    await upload
    assert reply.body == BIG
    assert origin.requests[0].one("Transfer-Encoding") == "chunked"
    assert (await wire.get("/")).status == 200


async def test_chunks_pass_as_they_come(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """Token streams: each piece is with the client before the next one is made."""
    go_on = asyncio.Semaphore(0)

    async def stream(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            await request.wire.send(b"6\r\ntoken%d\r\n" % number)
            await go_on.acquire()
        await request.wire.send(b"0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(stream))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    got = []
    async for piece in wire.chunks():
        got.append(piece)
        go_on.release()
    assert got == [b"token0", b"token1", b"token2"]


async def test_a_body_that_ends_with_the_connection_is_chunked_for_the_client(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def until_close(request: Request) -> None:
        await request.wire.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        request.wire.close()

    proxy = await proxies()
    proxy.route("/", await origins(until_close))
    wire = await proxy.connect()
    for _ in range(2):
        reply = await wire.get("/")
        assert (reply.body, reply.one("Transfer-Encoding")) == (b"all of it", "chunked")


async def test_pipelined_requests_are_answered_in_order(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def slow_first(request: Request) -> None:
        name = request.target.encode()
        if name == b"/0":
            await eventually(lambda: bool(wire_sent))
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name))

    wire_sent: list[bool] = []
    proxy = await proxies()
    proxy.route("/", await origins(slow_first), await origins(slow_first))
    wire = await proxy.connect()
    await wire.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number for number in range(20)))
    wire_sent.append(True)
    assert [(await wire.reply()).body for _ in range(20)] == [b"/%d" % number for number in range(20)]


async def test_a_pipelined_request_behind_a_body_is_served(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: h\r\n\r\n"
    )
    assert [(await wire.reply()).status, (await wire.reply()).status] == [200, 200]
    assert [request.target for request in origin.requests] == ["/a", "/b"]
    assert origin.requests[0].whole == b"abc"


async def test_a_head_that_comes_byte_by_byte_is_a_head(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    for byte in b"\r\nGET /slow HTTP/1.1\r\nHost: h\r\n\r\n":
        await wire.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await wire.reply()).status == 200
    assert origin.requests[0].target == "/slow"


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_body_ends_at_its_head(proxies: MakeProxy, origins: MakeOrigin, status: int) -> None:
    async def bodiless(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 %d X\r\nETag: a\r\n\r\n" % status)

    proxy = await proxies()
    origin = await origins(bodiless)
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(2)] == [status, status]
    assert origin.connections == 1


async def test_a_reply_to_head_keeps_its_length_and_has_no_body(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def head(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(head))
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        reply = await wire.reply("HEAD")
        assert (reply.status, reply.one("Content-Length")) == (200, "1000")


async def test_interim_replies_pass_before_the_final_one(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def hints(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    proxy = await proxies()
    proxy.route("/", await origins(hints))
    wire = await proxy.connect()
    first = await wire.get("/")
    assert (first.status, first.one("Link")) == (103, "</a>")
    assert (await wire.reply()).body == b"ok"


async def test_an_upstream_that_asks_for_the_body_gets_it(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def ask(request: Request) -> None:
        assert request.one("Expect") == "100-continue"
        await request.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.whole = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    proxy = await proxies()
    origin = await origins(ask)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert (await wire.reply()).status == 100
    await wire.send(b"hello")
    assert (await wire.reply()).status == 200
    assert origin.requests[0].whole == b"hello"


async def test_an_upstream_that_refuses_early_spares_the_upload(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def refuse(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(refuse))
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    reply = await wire.reply()
    assert (reply.status, reply.one("Connection")) == (401, "close")
    assert await wire.ended()


async def test_an_http_1_0_client_gets_its_body_until_close(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def stream(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello"))

    proxy = await proxies()
    origin = await origins(stream)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    reply = await wire.reply()
    assert (reply.body, reply.one("Transfer-Encoding")) == (b"hello", None)
    assert origin.requests[0].version == "HTTP/1.1"
    assert origin.requests[0].one("Host") == origin.member


async def test_an_http_1_0_client_may_keep_its_connection(proxy: Proxy) -> None:
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        reply = await wire.reply()
        assert (reply.body, reply.one("Connection")) == (b"ok", "keep-alive")
    await wire.send(b"GET / HTTP/1.0\r\n\r\n")
    assert (await wire.reply()).body == b"ok"
    assert await wire.ended()


async def test_a_client_that_sends_close_is_closed(proxy: Proxy) -> None:
    wire = await proxy.connect()
    reply = await wire.get("/", Connection="close")
    assert reply.one("Connection") == "close"
    assert await wire.ended()


async def test_an_upstream_that_sends_close_is_not_used_again(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def close(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    proxy = await proxies()
    origin = await origins(close)
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(3):
        reply = await wire.get("/")
        assert (reply.status, reply.one("Connection")) == (200, None)
    assert origin.connections == 3
    await eventually(lambda: origin.open == 0)
