"""What happens when one side goes away, stalls, or sends what it should not; and that every slot is given back."""

import asyncio
import contextlib
import socket
import struct
import sys

import pytest

from slb.proxy.disconnect_watcher import DisconnectWatcher
from tests.proxy.harness import (
    MakeOrigin,
    MakeProxy,
    Proxy,
    Request,
    Wire,
    port_that_never_accepts,
    wait_for_end,
)
from tests.support.waiting import eventually, settled, soon, within

MEGABYTE = bytes(1 << 20)


async def uploading(proxies: MakeProxy, origins: MakeOrigin, hold: asyncio.Event) -> tuple[Proxy, Wire]:
    """A client that has begun a large upload to an upstream which reads none of it and waits for `hold`."""

    async def never_read(request: Request) -> None:
        await hold.wait()

    proxy = await proxies()
    proxy.route("/", await origins(never_read))
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
    return proxy, wire


async def sent_within(seconds: float, wire: Wire) -> int:
    """How many megabytes can be sent in that time."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        async with within(seconds):
            while True:
                await wire.send(MEGABYTE)
                sent += 1
    return sent


async def test_a_client_that_leaves_while_waiting_frees_its_upstream_at_once(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    origin = await origins(wait_for_end)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: origin.open == 1 and proxy.inflight() == 1)
    wire.close()
    await eventually(lambda: origin.open == 0)
    assert proxy.inflight() == 0
    assert proxy.counted() == {(499, "client_gone"): 1}
    assert proxy.metrics.clients.disconnects == 1


async def test_a_client_that_leaves_while_uploading_frees_its_upstream_at_once(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    origin = await origins(wait_for_end)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nsome")
    await eventually(lambda: origin.open == 1)
    wire.reset()
    await eventually(lambda: origin.open == 0)
    await proxy.at_rest()


async def test_a_client_that_leaves_while_streaming_frees_its_upstream_at_once(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def stream(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntoken\r\n")
        await request.wire.ended()

    proxy = await proxies()
    origin = await origins(stream)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    wire.close()
    await eventually(lambda: origin.open == 0)
    await proxy.at_rest()
    assert proxy.counted() == {(499, "client_gone"): 1}


def read_to_end(client: socket.socket) -> None:
    while client.recv(1 << 20):
        pass


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_sends_and_reads_no_more_frees_its_upstream_and_its_connection(
    proxies: MakeProxy, origins: MakeOrigin, version: str
) -> None:
    async def stream(request: Request) -> None:
        request.wire.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        filled = 0
        while not filled:  # to where a part of it waits in the proxy, and not so much that it is held back
            request.wire.writer.write(bytes(20_000))
            await asyncio.sleep(0)
            (connection,) = proxy.server.clients.connections
            filled = connection.transport.get_write_buffer_size()
        await request.wire.ended()

    proxy = await proxies()
    origin = await origins(stream)
    proxy.route("/", origin)
    client = socket.create_connection(proxy.address)
    client.sendall(f"GET / HTTP/{version}\r\nHost: h\r\n\r\n".encode())
    await eventually(
        lambda: any(each.transport.get_write_buffer_size() for each in proxy.server.clients.connections)
    )
    client.shutdown(socket.SHUT_WR)
    await eventually(lambda: origin.open == 0 and not proxy.server.clients.connections)
    assert proxy.counted() == {(499, "client_gone"): 1}
    if version == "1.0":
        with pytest.raises(ConnectionResetError):
            read_to_end(client)
    client.close()


async def test_a_client_that_sends_no_more_can_still_read_its_replies(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def first_only(request: Request) -> None:
        if request.target == "/first":
            await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + bytes(10_000_000))
        else:
            await request.wire.ended()

    proxy = await proxies()
    origin = await origins(first_only)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n")
    await wire.head()
    await wire.send(b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
    assert await wire.reader.readexactly(9_990_000) == bytes(9_990_000)
    await eventually(lambda: len(origin.requests) == 2)
    wire.writer.write_eof()
    await eventually(lambda: origin.open == 0)
    assert await wire.reader.read() == bytes(10_000)


async def test_a_client_that_leaves_while_connecting_gives_its_slot_back(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    listener, fillers, member = port_that_never_accepts()
    try:
        proxy = await proxies()
        proxy.route("/", member, connect_timeout="5s")
        wire = await proxy.connect()
        await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await eventually(lambda: proxy.inflight() == 1)
        wire.close()
        await proxy.at_rest()
    finally:
        for each in (listener, *fillers):
            each.close()


async def test_a_client_that_leaves_while_its_upload_is_held_frees_its_upstream_at_once(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """It is not read from, so only the kernel has noticed."""
    hold = asyncio.Event()
    proxy, wire = await uploading(proxies, origins, hold)
    await sent_within(0.5, wire)
    at_once = struct.pack("ii", 1, 0)
    wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    wire.reset()
    await proxy.at_rest()
    assert proxy.counted() == {(499, "client_gone"): 1}
    hold.set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the end of connections that are not read")
async def test_a_client_that_ends_its_side_while_its_upload_is_held_frees_its_slot_at_once(
    proxies: MakeProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All it has sent has come, so its end is known to the kernel, and to nothing else."""
    held = asyncio.Event()
    watch = DisconnectWatcher.watch

    def watched(watcher: DisconnectWatcher, transport: asyncio.Transport) -> None:
        watch(watcher, transport)
        held.set()

    monkeypatch.setattr(DisconnectWatcher, "watch", watched)
    listener, fillers, member = port_that_never_accepts()
    with contextlib.ExitStack() as stack:
        for each in (listener, *fillers):
            stack.enter_context(each)
        proxy = await proxies()
        proxy.route("/", member, connect_timeout="600s")
        wire = await proxy.connect()
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        await eventually(lambda: proxy.inflight() == 1)
        await wire.send(bytes(100_000))
        await soon(held.wait())
        wire.writer.write_eof()
        await proxy.at_rest()
        assert proxy.counted() == {(499, "client_gone"): 1}


async def test_a_slow_upstream_holds_the_client_back(proxies: MakeProxy, origins: MakeOrigin) -> None:
    hold = asyncio.Event()
    _, wire = await uploading(proxies, origins, hold)
    assert await sent_within(1, wire) < 50, "the proxy takes in what its upstream does not take off it"
    hold.set()
    wire.reset()


async def test_a_slow_client_holds_the_upstream_back(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def flood(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        for _ in range(200):
            await request.wire.send(MEGABYTE)
            sent.append(1)

    sent: list[int] = []
    proxy = await proxies()
    origin = await origins(flood)
    proxy.route("/", origin)
    wire = await proxy.connect()
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(sent) > 2)
    assert await settled(lambda: len(sent)) < 50, "the proxy takes in what its client does not take off it"
    wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert len((await wire.reply()).body) == 200 << 20


async def test_a_client_that_stops_reading_is_cut_off(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def flood(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        for _ in range(200):
            await request.wire.send(MEGABYTE)

    proxy = await proxies()
    origin = await origins(flood)
    proxy.route("/", origin, idle_timeout="200ms")
    wire = await proxy.connect()
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: origin.open == 1)
    await eventually(lambda: origin.open == 0)
    await proxy.at_rest()


async def test_a_client_that_reads_slowly_is_not_cut_off(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """What it reads was in the kernel long before: for a while nothing leaves the proxy."""

    async def flood(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(100_000_000))

    proxy = await proxies()
    proxy.route("/", await origins(flood), idle_timeout="200ms")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(proxy.address)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        until = loop.time() + 2
        while loop.time() < until:
            assert await loop.sock_recv(client, 2000)
            await asyncio.sleep(0.02)
        assert proxy.inflight() == 1
    await proxy.at_rest()


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
