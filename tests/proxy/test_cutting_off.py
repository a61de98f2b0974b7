"""An upstream that stops, stalls, or sends what it should not: what is half is never taken for whole."""

import asyncio
import contextlib

import pytest

from tests.proxy.harness import MakeOrigin, MakeProxy, Request
from tests.support.waiting import eventually, soon


async def test_an_upstream_that_stops_in_the_middle_cuts_the_client_off(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """Never a short body that looks whole."""

    async def half(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        request.wire.reset()

    proxy = await proxies()
    proxy.route("/", await origins(half))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    got = b""
    with contextlib.suppress(ConnectionError):
        got = await wire.reader.read()
    assert not got.endswith(b"0\r\n\r\n")
    assert proxy.counted() == {(200, "upstream_reset"): 1}


async def test_a_reply_that_breaks_in_the_middle_cuts_the_client_off(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def broken(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await begun.wait()
        await request.wire.send(b"nonsense\r\n")
        await request.wire.ended()

    begun = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(broken))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    begun.set()
    with contextlib.suppress(ConnectionError):
        assert not (await wire.reader.read()).endswith(b"0\r\n\r\n")
    assert proxy.counted() == {(200, "upstream_protocol"): 1}


async def test_an_upstream_that_stalls_in_the_middle_cuts_the_client_off(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def stall(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(stall), idle_timeout="100ms")
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    with contextlib.suppress(ConnectionError):
        assert await wire.reader.read() == b"hello"
    assert proxy.counted() == {(200, "upstream_timeout"): 1}


async def test_half_a_body_that_ends_with_the_connection_ends_in_a_reset(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """A client of HTTP/1.0 would take a peaceful close for the end of the body."""

    async def half(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await begun.wait()
        request.wire.reset()

    begun = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(half))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.0\r\n\r\n")
    await wire.head()
    assert await wire.reader.readexactly(5) == b"hello"
    begun.set()
    with pytest.raises(ConnectionResetError):
        await soon(wire.reader.read())


async def test_a_body_that_breaks_after_its_head_is_400_and_leaves_no_upstream_connection(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def read(request: Request) -> None:
        await request.body()

    proxy = await proxies()
    origin = await origins(read)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
    await eventually(lambda: len(origin.requests) == 1)
    await wire.send(b"nonsense\r\n")
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (400, "bad_request")
    assert await wire.ended()
    await eventually(lambda: origin.open == 0)


async def test_a_deadline_that_is_met_after_the_answer_answers_nothing_more(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """The wheel expires all of one slot in turn, and the first of them may have ended the second."""
    go = asyncio.Event()

    async def waits(request: Request) -> None:
        await go.wait()
        go.clear()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    proxy = await proxies()
    proxy.route("/", await origins(waits))
    wire = await proxy.connect()
    ask = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    await wire.send(ask)
    await eventually(lambda: proxy.inflight() == 1)
    (connection,) = proxy.server.clients.connections
    first = connection.exchange
    assert first is not None
    go.set()
    assert (await wire.reply()).status == 200
    await wire.send(ask)
    await eventually(lambda: connection.exchange not in (None, first) and proxy.inflight() == 1)
    first.expired()
    first.client_late()
    go.set()
    assert (await wire.reply()).status == 200
    assert proxy.counted() == {(200, ""): 2}
