"""A client that goes away, or sends no more: what it had at its upstream is given back, and at once."""

import asyncio
import contextlib
import socket
import struct
import sys

import pytest

from slb.proxy.disconnect_watcher import DisconnectWatcher
from tests.proxy.harness import MakeOrigin, MakeProxy, Request, port_that_never_accepts, wait_for_end
from tests.proxy.uploads_rig import sent_within, uploading
from tests.support.waiting import eventually, soon


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
