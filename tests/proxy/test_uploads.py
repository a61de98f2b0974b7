"""Bodies on their way: how much of one is kept, which side is held back, and how long the upstream may take."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slb.proxy.downstream import Downstream
from slb.proxy.upload import Upload
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.pool import Pool
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.waiting import eventually, settled, soon

MOST_HELD = 64 << 10
READ_AT_ONCE = 256 << 10


async def refuse(request: Request) -> None:
    request.whole = await request.body()
    await request.wire.send(b"HTTP/1.1 503 X\r\nContent-Length: 3\r\n\r\nbad")


def put(length: int) -> bytes:
    return b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % length


def under_way(proxy: Proxy) -> tuple[Downstream, Upload]:
    """The one upload, and the connection it comes on."""
    ((downstream, upload),) = [
        (each, each.exchange.upload)
        for each in proxy.server.clients.connections
        if each.exchange is not None and each.exchange.upload is not None
    ]
    return downstream, upload


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """No connection to an upstream is made before this is set."""
    gate = asyncio.Event()
    real: Callable[[Pool, float], Awaitable[UpstreamConnection]] = Pool.connect

    async def connect(pool: Pool, timeout: float) -> UpstreamConnection:
        await gate.wait()
        return await real(pool, timeout)

    monkeypatch.setattr(Pool, "connect", connect)
    return gate


@pytest.mark.parametrize(("size", "served"), [(MOST_HELD, [200, 200]), (MOST_HELD + 1, [200, 503])])
async def test_a_body_of_just_what_is_held_is_sent_again_and_one_byte_more_is_not(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin, size: int, served: list[int]
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(refuse), origin)
    wire = await proxy.connect()
    seen = []
    for _ in range(2):
        await wire.send(put(size) + bytes(size))
        seen.append((await wire.reply()).status)
    assert sorted(seen) == served
    assert {len(request.whole) for request in origin.requests} == {size}


async def test_what_came_of_a_body_before_there_was_a_connection_is_not_held_either_where_it_is_too_much(
    proxies: MakeProxy, origins: MakeOrigin, held_up: asyncio.Event
) -> None:
    proxy = await proxies()
    two = [await origins(refuse), await origins(refuse)]
    proxy.route("/", *two)
    wire = await proxy.connect()
    await wire.send(put(80_000) + bytes(80_000))
    await eventually(lambda: proxy.inflight() == 1)
    await eventually(lambda: len(under_way(proxy)[1].held or b"") == 80_000)
    held_up.set()
    assert (await wire.reply()).body == b"bad"
    assert [len(request.whole) for each in two for request in each.requests] == [80_000]
    assert sum(proxy.metrics.retries.values()) == 0


async def test_a_small_end_of_a_large_body_is_not_taken_for_the_whole_of_it(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    two = [await origins(refuse), await origins(refuse)]
    proxy.route("/", *two)
    wire = await proxy.connect()
    await wire.send(put(80_002) + bytes(80_000))
    await eventually(lambda: proxy.inflight() == 1)
    await eventually(lambda: under_way(proxy)[1].held is None)
    for _ in range(2):
        await wire.send(b"x")
        await asyncio.sleep(0.02)
    assert (await wire.reply()).status == 503
    assert [len(request.whole) for each in two for request in each.requests] == [80_002]


async def test_a_client_that_sends_much_before_there_is_a_connection_is_held_back(
    proxies: MakeProxy, origin: Origin, held_up: asyncio.Event
) -> None:
    size = 16 << 20
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    sending = asyncio.create_task(wire.send(put(size) + bytes(size)))
    await eventually(lambda: proxy.inflight() == 1)
    kept = await settled(lambda: len(under_way(proxy)[1].held or b""))
    assert MOST_HELD < kept <= MOST_HELD + READ_AT_ONCE
    assert under_way(proxy)[0].upload_is_held
    held_up.set()
    await sending
    assert (await wire.reply()).status == 200
    assert len(origin.requests[0].whole) == size


async def test_an_upload_that_was_held_back_goes_on_when_its_upstream_takes_more(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    size = 32 << 20
    takes = asyncio.Event()

    async def late(request: Request) -> None:
        await takes.wait()
        request.whole = await request.body()
        await request.wire.send(OK)

    proxy = await proxies()
    origin = await origins(late)
    proxy.route("/", origin)
    wire = await proxy.connect()
    sending = asyncio.create_task(wire.send(put(size) + bytes(size)))
    await eventually(lambda: len(origin.requests) == 1)
    await eventually(lambda: under_way(proxy)[0].upload_is_held)
    takes.set()
    await soon(sending, 20)
    assert (await wire.reply()).status == 200
    assert len(origin.requests[0].whole) == size


async def due_after(proxy: Proxy, wire: Wire, piece: bytes) -> float:
    """When the first byte of the reply is due once `piece` has gone on."""
    exchange = under_way(proxy)[0].exchange
    assert exchange is not None
    before = exchange.bytes_in
    await wire.send(piece)
    await eventually(lambda: exchange.bytes_in == before + len(piece))
    assert exchange.connection is not None
    return exchange.connection.due


async def test_the_time_for_the_first_byte_begins_with_the_last_of_the_body(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(put(4))
    await eventually(lambda: len(origin.requests) == 1)
    dues = [await due_after(proxy, wire, b"x") for _ in range(3)]
    assert dues == sorted(set(dues))
    await wire.send(b"x")
    assert (await wire.reply()).status == 200


async def test_an_upstream_that_reads_slowly_is_given_the_time_it_takes(proxies: MakeProxy) -> None:
    """What it reads was in the kernel long before: for a while nothing leaves the proxy."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        proxy = await proxies()
        member = f"127.0.0.1:{listener.getsockname()[1]}"
        proxy.route("/", member, first_byte_timeout="200ms", idle_timeout="200ms")
        wire = await proxy.connect()
        wire.writer.write(put(100_000_000) + bytes(100_000_000))
        connection, _ = await loop.sock_accept(listener)
        with connection:
            until = loop.time() + 2
            while loop.time() < until:
                assert await loop.sock_recv(connection, 2000)
                await asyncio.sleep(0.02)
            assert proxy.inflight() == 1
            await eventually(lambda: not proxy.inflight())  # it reads no more
    assert proxy.counted() == {(504, "upstream_timeout"): 1}


async def test_a_reply_that_breaks_while_chunks_wait_for_their_turn_ends_both(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """What is left of the upload for the turns to come belongs to no request then."""

    async def breaks(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        request.wire.reset()

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    proxy = await proxies()
    proxy.route("/", await origins(breaks), retries="0")
    wire = await proxy.connect()
    chunks = b"1\r\na\r\n" * (1 << 14)
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    with contextlib.suppress(ConnectionError):
        await soon(wire.reader.read())
    await proxy.at_rest()
    assert errors == []
