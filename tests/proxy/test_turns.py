"""No connection keeps the event loop from the others, whatever it sends: each has a budget for one turn."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slb.proxy.downstream import Downstream
from slb.proxy.exchange import Exchange
from slb.proxy.tunnel import _End
from slb.upstreams.connection import UpstreamConnection
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.waiting import eventually

MANY = 40_000
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


async def done_when_another_is_served(proxy: Proxy, wire: Wire, message: bytes, done: Callable[[], int]) -> int:
    """How much of `message` has been dealt with when a request that came after it has its reply."""
    other = await proxy.connect()
    sending = asyncio.create_task(wire.send(message))
    await eventually(lambda: done() > 0, what="nothing of it has come")
    assert (await other.get("/other")).status == 200
    found = done()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    wire.reset()
    return found


async def test_requests_that_slb_answers_itself_let_others_in_between(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/other", origin)
    message = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n" * MANY
    answered = await done_when_another_is_served(
        proxy, await proxy.connect(), message, lambda: proxy.counted().get((404, "no_route"), 0)
    )
    assert answered < MANY / 2


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(b"1\r\nx\r\n", id="plain"), pytest.param(b"1;a=b;c\r\nx\r\n", id="with-extensions")],
)
async def test_uploads_in_small_chunks_let_others_in_between(
    proxies: MakeProxy, origin: Origin, chunk: bytes
) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()

    def taken() -> int:
        exchanges = [each.exchange for each in proxy.server.clients.connections if each.exchange is not None]
        return max((each.bytes_in for each in exchanges), default=0)

    assert await done_when_another_is_served(proxy, wire, CHUNKED + chunk * MANY, taken) < MANY / 2


async def test_replies_in_small_chunks_let_others_in_between(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on: list[int] = []
    real = Exchange._pass_on

    def counting(
        exchange: Exchange, connection: UpstreamConnection, start: bytes, payload: bytes, *more: Any
    ) -> None:
        if exchange.route.path == "/":
            passed_on.append(len(payload))
        real(exchange, connection, start, payload, *more)

    async def drip(request: Request) -> None:
        chunks = b"1;a=b\r\nx\r\n" * MANY
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    monkeypatch.setattr(Exchange, "_pass_on", counting)
    proxy = await proxies()
    proxy.route("/", await origins(drip))
    proxy.route("/other", origin)
    wire = await proxy.connect()
    message = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    other = await proxy.connect()
    await wire.send(message)
    await eventually(lambda: bool(passed_on))
    assert (await other.get("/other")).status == 200
    assert sum(passed_on) < MANY / 2
    assert (await wire.reply()).body == b"x" * MANY


# -- what is left for the next turn


async def test_many_chunks_come_whole_whatever_stands_behind_them(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(CHUNKED + b"1;a\r\nx\r\n" * MANY + b"0\r\n\r\n" + b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [(await wire.reply()).status for _ in range(2)] == [200, 200]
    assert [request.whole for request in origin.requests] == [b"x" * MANY, b""]


async def test_many_chunks_of_a_reply_come_whole_though_its_upstream_has_closed(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def drip_and_close(request: Request) -> None:
        chunks = b"1\r\nx\r\n" * MANY
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        request.wire.close()

    proxy = await proxies()
    proxy.route("/", await origins(drip_and_close))
    assert (await proxy.get()).body == b"x" * MANY


async def test_a_body_whose_framing_breaks_after_many_chunks_is_refused(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(CHUNKED + b"1\r\nx\r\n" * MANY + b"broken\r\n")
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (400, "bad_request")


async def test_a_client_that_leaves_between_two_turns_leaves_nothing_behind(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(CHUNKED + b"1\r\nx\r\n" * MANY)
    await eventually(lambda: proxy.inflight() == 1)
    wire.reset()
    await proxy.at_rest()
    await eventually(lambda: not proxy.server.clients.connections)


# -- bytes


@contextmanager
def read_in_one_turn(monkeypatch: pytest.MonkeyPatch, kind: type) -> Iterator[Counter[int]]:
    """Turn of the event loop -> the most bytes that one connection of `kind` was read in it."""
    turns = 0
    read: Counter[tuple[int, int]] = Counter()
    most: Counter[int] = Counter()
    real = kind.data_received  # type: ignore[attr-defined]

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def counting(connection: Any, data: bytes) -> None:
        read[turns, id(connection)] += len(data)
        most[turns] = max(most[turns], read[turns, id(connection)])
        real(connection, data)

    monkeypatch.setattr(kind, "data_received", counting)
    task = asyncio.get_running_loop().create_task(count())
    try:
        yield most
    finally:
        task.cancel()


LARGE = 16 << 20
AT_ONCE = 384 << 10
"""One full read, and one that was just short of one."""


async def test_a_fast_upload_is_read_in_turns(
    proxies: MakeProxy, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    with read_in_one_turn(monkeypatch, Downstream) as most:
        wire = await proxy.connect()
        await wire.send(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % LARGE + bytes(LARGE))
        assert (await wire.reply()).status == 200
    assert max(most.values()) <= AT_ONCE


async def test_a_fast_reply_is_read_in_turns(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pour(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE + bytes(LARGE))

    proxy = await proxies()
    proxy.route("/", await origins(pour))
    with read_in_one_turn(monkeypatch, UpstreamConnection) as most:
        assert len((await proxy.get()).body) == LARGE
    assert max(most.values()) <= AT_ONCE


async def test_a_tunnel_is_read_in_turns(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
        await request.wire.reader.readexactly(LARGE)
        await request.wire.send(OK)

    proxy = await proxies()
    proxy.route("/", await origins(take))
    wire = await proxy.connect()
    with read_in_one_turn(monkeypatch, _End) as most:
        await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
        assert (await wire.reply()).status == 101
        await wire.send(bytes(LARGE))
        assert (await wire.reply()).status == 200
    assert max(most.values()) <= AT_ONCE
