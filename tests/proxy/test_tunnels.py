"""Upgrade: after 101, bytes pass both ways until both sides have ended."""

import asyncio
import contextlib
import re
import socket
import struct

from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.waiting import eventually, settled, soon, within

UPGRADE = b"GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n"


async def shout(request: Request) -> None:
    """Sends back what it reads, in capitals, until the end; then sends a goodbye."""
    await request.wire.send(SWITCHING + b"HELLO ")
    while data := await request.wire.reader.read(65536):
        await request.wire.send(data.upper())
    await request.wire.send(b"BYE")
    request.wire.close()


async def opened(proxy: Proxy) -> Wire:
    wire = await proxy.connect()
    await wire.send(UPGRADE)
    first, headers = await wire.head()
    names = {name.lower(): value for name, value in headers}
    assert first == "HTTP/1.1 101 Switching Protocols"
    assert (names["upgrade"], names["connection"], names["sec-websocket-accept"]) == ("websocket", "Upgrade", "a")
    return wire


async def test_bytes_pass_both_ways_and_half_closing_is_seen(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    origin = await origins(shout)
    proxy.route("/", origin)
    wire = await opened(proxy)
    assert (origin.requests[0].one("Upgrade"), origin.requests[0].one("Connection")) == ("websocket", "Upgrade")
    await wire.send(b"one two")
    assert await wire.reader.readexactly(13) == b"HELLO ONE TWO"
    wire.writer.write_eof()
    assert await soon(wire.reader.read()) == b"BYE"
    await proxy.at_rest()
    assert proxy.counted() == {(101, ""): 1}
    line = proxy.logged()[0]
    assert (line["bytes_in"], line["bytes_out"]) == (7, 10)


async def test_a_tunnel_is_in_flight_until_it_ends(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    origin = await origins(shout)
    proxy.route("/", origin)
    wire = await opened(proxy)
    assert proxy.inflight() == 1
    wire.reset()
    await proxy.at_rest()
    await eventually(lambda: origin.open == 0)


async def test_what_is_sent_with_the_request_reaches_the_other_side(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(shout))
    wire = await proxy.connect()
    await wire.send(UPGRADE + b"early")
    await wire.head()
    assert await wire.reader.readexactly(11) == b"HELLO EARLY"


async def test_an_upstream_that_does_not_switch_answers_as_ever(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(UPGRADE)
    assert (await wire.reply()).body == b"ok"
    assert (await wire.get("/")).body == b"ok"


async def test_h2c_is_not_asked_for(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(UPGRADE.replace(b"websocket", b"h2c"))
    assert (await wire.reply()).status == 200
    assert origin.requests[0].one("Upgrade") is None


async def test_a_protocol_the_client_did_not_ask_for_is_502(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def other(request: Request) -> None:
        await request.wire.send(SWITCHING.replace(b"websocket", b"other"))
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(other))
    wire = await proxy.connect()
    await wire.send(UPGRADE)
    assert (await wire.reply()).reason == "upstream_protocol"


async def test_a_tunnel_through_which_nothing_moves_is_cut(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    origin = await origins(shout)
    proxy.route("/", origin, tunnel_timeout="100ms")
    wire = await opened(proxy)
    assert await wire.reader.readexactly(6) == b"HELLO "
    assert await wire.ended()
    await eventually(lambda: origin.open == 0)
    await proxy.at_rest()


async def test_a_slow_side_holds_the_other_back(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def flood(request: Request) -> None:
        await request.wire.send(SWITCHING)
        for _ in range(100):
            await request.wire.send(bytes(1 << 20))
            sent.append(1)

    sent: list[int] = []
    proxy = await proxies()
    proxy.route("/", await origins(flood))
    wire = await opened(proxy)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await eventually(lambda: len(sent) > 2)
    assert await settled(lambda: len(sent)) < 50


async def test_a_client_that_resets_a_tunnel_that_is_not_read_is_noticed(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def deaf(request: Request) -> None:
        request.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await request.wire.send(SWITCHING)
        await over.wait()

    over = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(deaf))
    wire = await proxy.connect()
    await wire.send(UPGRADE)
    await wire.head()
    with contextlib.suppress(TimeoutError):
        async with within(0.5):
            while True:
                await wire.send(bytes(1 << 20))
    at_once = struct.pack("ii", 1, 0)
    wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    wire.reset()
    await proxy.at_rest()
    over.set()


async def test_a_tunnels_timing_is_sent_to_clients_that_ask(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies(client_detail="full")
    proxy.route("/", await origins(shout))
    timings = []
    for asked in (b"X-Slb-Timing: 1\r\n\r\n", b"\r\n"):
        wire = await proxy.connect()
        await wire.send(UPGRADE.removesuffix(b"\r\n") + asked)
        _, headers = await wire.head()
        timings.append([value for name, value in headers if name == "Server-Timing"])
        assert await wire.reader.readexactly(6) == b"HELLO "
        wire.reset()
    assert re.fullmatch(r'upstream;dur=\d+\.\d{3}, attempts;desc="1"', timings[0][0])
    assert timings[1] == []


async def test_a_client_slow_to_read_what_came_with_the_switch_holds_the_other_side_back_and_keeps_its_tunnel(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    poured = 0

    async def pour(request: Request) -> None:
        nonlocal poured
        if request.target == "/before":
            await request.wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            (connection,) = proxy.server.clients.connections
            while not connection.transport.get_write_buffer_size():  # until the systems hold what they can
                await request.wire.send(b"4e20\r\n" + bytes(20_000) + b"\r\n")
                await asyncio.sleep(0)
            await request.wire.send(b"0\r\n\r\n")
            return
        request.wire.writer.write(SWITCHING + bytes(250_000))
        for _ in range(100):
            await request.wire.send(bytes(200_000))
            poured += 200_000

    proxy = await proxies()
    origin = await origins(pour)
    proxy.route("/", origin, idle_timeout="100ms")
    client = socket.create_connection(proxy.address)
    client.sendall(b"GET /before HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: proxy.counted() == {(200, ""): 1})
    client.sendall(UPGRADE)
    await eventually(lambda: len(origin.requests) == 2)
    await settled(lambda: poured)  # which takes longer than an exchange may be silent
    assert poured < 15_000_000
    assert (proxy.inflight(), proxy.counted()) == (1, {(200, ""): 1})
    client.close()
