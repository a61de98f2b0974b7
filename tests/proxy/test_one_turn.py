"""What is sent within one turn of the event loop arrives whole and in order, whatever happens to the connection."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from slb.proxy.downstream import Downstream
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.outbox import Outbox
from slb.upstreams.pool import Pool
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, answer_ok
from tests.proxy.test_tunnels import SWITCHING, UPGRADE
from tests.support.waiting import eventually, settled, soon

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CHUNKED_POST = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HIGH_WATER = 64 << 10
ONE_ANSWER = 4096
MOST_WAITING = 768 << 10
"""Small writes of one turn, the high water, and what is read at once, which is 256 kB."""


class Plain:
    """A socket without an event loop's buffers: what is sent has arrived in the other's kernel when `send` returns,
    so that a test decides what one turn of the proxy finds."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    async def read(self, until: bytes) -> bytes:
        """What comes, up to and with `until`; or to the end of the connection."""
        read = b""
        with suppress(ConnectionError):
            while not read.endswith(until):
                data = await soon(asyncio.get_running_loop().sock_recv(self.sock, 65536))
                if not data:
                    break
                read += data
        return read


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[socket.socket]:
    """A listener that the test accepts from itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


async def accepted(listener: socket.socket) -> Plain:
    made, _ = await soon(asyncio.get_running_loop().sock_accept(listener))
    return Plain(made)


def member(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def both_ends(proxy: Proxy, upstream: socket.socket, request: bytes) -> AsyncIterator[tuple[Plain, Plain]]:
    """A client that has sent `request`, and the upstream's end of the connection by which its head has come."""
    proxy.route("/", member(upstream))
    with socket.create_connection(proxy.address) as sock:
        client = Plain(sock)
        client.send(request)
        origin = await accepted(upstream)
        with origin.sock:
            await origin.read(b"\r\n\r\n")
            yield client, origin


# -- one connection after another use


@pytest.mark.parametrize(
    "second", [b"POST /register", b"DELETE /register", b"GET /_slb/healthz", b"HEAD /_slb/readyz"]
)
async def test_a_request_for_the_applications_is_answered_behind_the_reply_before_it(
    proxy: Proxy, second: bytes
) -> None:
    wire = await proxy.connect()
    await wire.send(GET + second + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    assert [(await wire.reply()).body, (await wire.reply()).body] == [b"ok", b"mine"]
    assert await wire.ended()
    assert len(proxy.handed_over) == 1


@pytest.mark.parametrize("second", [b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n", b"nonsense\r\n\r\n"])
async def test_a_refusal_stands_behind_the_reply_before_it(
    proxies: MakeProxy, origin: Origin, second: bytes
) -> None:
    proxy = await proxies()
    proxy.route("/api", origin)
    wire = await proxy.connect()
    await wire.send(b"GET /api HTTP/1.1\r\nHost: h\r\n\r\n" + second)
    assert (await wire.reply()).body == b"ok"
    assert (await wire.reply()).status in (400, 404)


async def test_the_last_reply_is_whole_before_the_connection_closes(proxy: Proxy) -> None:
    wire = await proxy.connect()
    await wire.send(GET + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + GET)
    assert [(await wire.reply()).body for _ in range(2)] == [b"ok", b"ok"]
    assert await wire.ended()


async def test_a_refusal_is_whole_before_the_end_of_the_connection(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(max_body=10)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(GET + b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nstill com")
    assert (await wire.reply()).body == b"ok"
    assert (await wire.reply()).reason == "body_too_large"
    assert await wire.reader.read() == b""


async def test_a_client_that_reads_no_refusals_costs_one_buffer(proxies: MakeProxy, origin: Origin) -> None:
    """A turn reads a quarter of a megabyte: as many refusals as fit in that must not be made at once."""
    proxy = await proxies(access_log="off")
    proxy.route("/api", origin)
    wire = await proxy.connect()
    await eventually(lambda: proxy.metrics.clients.connections() == 1)
    (downstream,) = proxy.server.clients.connections
    downstream.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    wire.writer.write(GET * 20_000)
    await eventually(lambda: downstream.is_stalled)
    assert await settled(downstream.transport.get_write_buffer_size) < HIGH_WATER + ONE_ANSWER


# -- one message in pieces


async def test_a_body_that_goes_on_in_the_turn_of_its_head_stands_behind_it(
    proxies: MakeProxy, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(pool: Pool, timeout: float) -> UpstreamConnection:
        connection = await real(pool, timeout)
        client.send(b"4\r\nmore\r\n0\r\n\r\n")  # is read after the head was posted, before the turn ends
        return connection

    real = Pool.connect
    monkeypatch.setattr(Pool, "connect", connect)
    proxy = await proxies()
    proxy.route("/", origin)
    with socket.create_connection(proxy.address) as sock:
        client = Plain(sock)
        client.send(CHUNKED_POST + b"5\r\nfirst\r\n")
        assert (await client.read(b"ok")).startswith(b"HTTP/1.1 200 ")
    assert origin.requests[0].whole == b"firstmore"


async def test_interim_and_final_reply_of_one_segment_come_in_that_order(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def hints(request: Request) -> None:
        await request.wire.send(EARLY_HINTS + EARLY_HINTS + OK)

    proxy = await proxies()
    proxy.route("/", await origins(hints))
    wire = await proxy.connect()
    await wire.send(GET)
    assert [(await wire.reply()).status for _ in range(3)] == [103, 103, 200]


async def test_what_came_of_a_reply_arrives_before_the_reset_that_shows_it_broke(
    proxies: MakeProxy, upstream: socket.socket
) -> None:
    proxy = await proxies()
    async with both_ends(proxy, upstream, CHUNKED_POST) as (client, origin):
        origin.send(CHUNKED_OK)
        await client.read(b"\r\n\r\n")
        origin.send(b"5\r\nhello\r\n")
        client.send(b"nonsense\r\n")  # found in the same turn: the reply cannot go on
        assert await client.read(b"the end of the connection") == b"5\r\nhello\r\n"
    assert proxy.counted() == {(200, "bad_request"): 1}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_an_upstream_sends_before_its_request_has_left_answers_nothing(
    proxies: MakeProxy, upstream: socket.socket, method: str
) -> None:
    """A reply without a request, read in the turn in which its idle connection is taken for a request."""
    proxy = await proxies(max_upstream_connections=1)
    async with both_ends(proxy, upstream, GET) as (client, origin):
        origin.send(OK)
        await client.read(b"ok")
        client.send(f"{method} /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode())
        origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        another = await accepted(upstream)
        await another.read(b"\r\n\r\n")
        another.send(OK)
        assert (await client.read(b"ok")).startswith(b"HTTP/1.1 200 ")
        another.sock.close()
        assert await origin.read(b"the end of the connection") == b""


# -- tunnels


async def test_an_interim_reply_comes_before_the_switch_of_protocols(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def hints(request: Request) -> None:
        await request.wire.send(EARLY_HINTS + SWITCHING + b"HELLO")
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(hints))
    wire = await proxy.connect()
    await wire.send(UPGRADE)
    assert [(await wire.reply()).status, (await wire.head())[0]] == [103, "HTTP/1.1 101 Switching Protocols"]
    assert await wire.reader.readexactly(5) == b"HELLO"


async def test_a_client_that_sends_far_ahead_of_its_tunnel_loses_nothing_and_may_close_its_half(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def count(request: Request) -> None:
        await eventually(lambda: bool(disconnects._watched), what="the client is held back")
        await request.wire.send(SWITCHING)
        read = await request.wire.reader.read()
        disconnects.expired()  # had the client left, this would notice
        await request.wire.send(b"%d" % len(read) if read == early else b"garbled")
        request.wire.close()

    early = bytes(range(256)) * 1600
    proxy = await proxies()
    disconnects = proxy.server.clients.disconnects
    proxy.route("/", await origins(count))
    wire = await proxy.connect()
    wire.writer.write(UPGRADE + early)
    await wire.head()
    wire.writer.write_eof()
    assert await soon(wire.reader.read()) == b"%d" % len(early)


# -- a turn that reads much


def pour(plain: Plain) -> int:
    """Send as much as the kernels between the two take; no turn of the event loop comes in between."""
    poured = 0
    with suppress(BlockingIOError):
        while True:
            poured += plain.sock.send(bytes(1 << 20))
    return poured


async def most_waiting(plain: Plain, transport: asyncio.Transport) -> int:
    """The most bytes that wait for `transport` until no more of what `plain` sends is taken."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sizes = []

    def pour_more() -> int:
        sizes.append(transport.get_write_buffer_size())
        return pour(plain)

    while await settled(pour_more, still=0.05):
        pass
    return max(sizes)


async def test_what_a_turn_reads_for_a_client_that_does_not_read_costs_a_few_buffers(
    proxies: MakeProxy, upstream: socket.socket
) -> None:
    proxy = await proxies()
    async with both_ends(proxy, upstream, GET) as (_, origin):
        origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        (served,) = proxy.server.clients.connections
        assert HIGH_WATER < await most_waiting(origin, served.transport) < MOST_WAITING


async def test_what_a_turn_reads_for_an_upstream_that_does_not_read_costs_a_few_buffers(
    proxies: MakeProxy, upstream: socket.socket
) -> None:
    proxy = await proxies()
    upload = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (1 << 40)
    async with both_ends(proxy, upstream, upload) as (client, _):
        (served,) = proxy.server.clients.connections
        assert served.exchange is not None
        assert served.exchange.connection is not None
        served.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        assert HIGH_WATER < await most_waiting(client, served.exchange.connection.transport) < MOST_WAITING


# -- nothing beside the outbox


class Watched:
    """A transport that notes what is written to it while no outbox is being flushed."""

    def __init__(self, transport: Any, strays: list[bytes], flushing: list[bool]) -> None:
        self._transport = transport
        self._strays = strays
        self._flushing = flushing

    def write(self, data: bytes) -> None:
        if not self._flushing:
            self._strays.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.fixture
def strays(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was written without passing the outbox."""
    found: list[bytes] = []
    flushing: list[bool] = []
    real_flush = Outbox.flush

    def flush(outbox: Outbox) -> None:
        flushing.append(True)
        real_flush(outbox)
        flushing.pop()

    monkeypatch.setattr(Outbox, "flush", flush)
    for side in (Downstream, UpstreamConnection):
        real_made = side.connection_made

        def made(self: Any, transport: Any, real_made: Any = real_made) -> None:
            real_made(self, Watched(transport, found, flushing))

        monkeypatch.setattr(side, "connection_made", made)
    return found


async def test_a_request_and_its_replies_are_written_at_the_end_of_their_turns(
    strays: list[bytes], proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def in_pieces(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await request.body()
        await request.wire.send(b"HTTP/1.0 200 OK\r\n\r\nuntil")
        await half.wait()
        await request.wire.send(b" the end")
        request.wire.close()

    half = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(in_pieces))
    wire = await proxy.connect()
    await wire.send(CHUNKED_POST)
    assert (await wire.reply()).status == 100
    await wire.send(b"4\r\nbody\r\n")
    await wire.send(b"0\r\n\r\n")
    await wire.head()
    half.set()
    assert b"".join([piece async for piece in wire.chunks()]) == b"until the end"
    assert strays == []


async def test_refusals_are_written_at_the_end_of_their_turns(
    strays: list[bytes], proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def broken(request: Request) -> None:
        if request.target == "/api":
            await answer_ok(request)
        else:
            await request.wire.send(b"nonsense\r\n\r\n")

    proxy = await proxies()
    proxy.route("/api", await origins(broken))
    wire = await proxy.connect()
    reasons = [(await wire.get(path)).reason for path in ("/api/broken", "/none")]
    await wire.send(b"nonsense\r\n\r\n")
    assert [*reasons, (await wire.reply()).reason] == ["upstream_protocol", "no_route", "bad_request"]
    assert strays == []
