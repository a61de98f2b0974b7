"""A side that is slow holds the other back; one that stands still is cut off."""

import asyncio
import socket

from tests.proxy.harness import MakeOrigin, MakeProxy, Request
from tests.proxy.uploads_rig import MEGABYTE, sent_within, uploading
from tests.support.waiting import eventually, settled


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
