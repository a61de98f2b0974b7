"""Peers that are broken or mean it: each is bounded in memory, in time, and in what it can do to others."""

import asyncio
import socket
import struct

import pytest

from slb.proxy import reader
from slb.proxy.target import RequestLine, parse_line
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, Wire
from tests.support.waiting import eventually, settled

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def stop_reading(wire: Wire) -> None:
    """From now on this side takes nothing, and the other side's writes pile up."""
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]


async def test_an_upstream_with_endless_interim_replies_is_502(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def chatter(request: Request) -> None:
        while True:
            await request.wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000)

    proxy = await proxies()
    proxy.route("/", await origins(chatter))
    wire = await proxy.connect()
    await wire.send(GET)
    interims = 0
    while (reply := await wire.reply()).status == 103:
        interims += 1
    assert (reply.status, reply.reason, interims) == (502, "upstream_protocol", 100)


async def test_a_reply_head_that_is_too_long_is_502_however_it_comes(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def long(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nX: %b\r\nContent-Length: 0\r\n\r\n" % (b"a" * 2000))

    proxy = await proxies(max_head=1000)
    proxy.route("/", await origins(long))
    assert (await proxy.get("/")).reason == "upstream_protocol"


async def test_an_upstream_that_accepts_and_resets_is_502_and_leaves_no_connection_counted(
    proxies: MakeProxy,
) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    try:
        proxy = await proxies(max_upstream_connections=2)
        proxy.route("/", f"127.0.0.1:{server.sockets[0].getsockname()[1]}", retries="0")
        reasons = {(await proxy.get("/")).reason for _ in range(20)}
        assert reasons <= {"upstream_reset", "upstream_connect"}
    finally:
        server.close()


async def test_an_upstream_that_answers_early_and_reads_no_more_keeps_no_connection(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def early(request: Request) -> None:
        stop_reading(request.wire)
        await full.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await asyncio.Event().wait()

    full = asyncio.Event()
    proxy = await proxies(max_upstream_connections=1)
    origin = await origins(early)
    proxy.route("/early", origin)
    proxy.route("/", await origins())
    wire = await proxy.connect()
    upload = asyncio.create_task(
        wire.send(b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 90000000\r\n\r\n" + bytes(30 << 20))
    )
    await settled(lambda: wire.writer.transport.get_write_buffer_size())  # until no buffer on the way takes more
    full.set()
    assert (await wire.reply()).body == b"ok"
    wire.reset()
    await asyncio.wait([upload])
    origin.handle = lambda request: request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew")
    assert (await proxy.get("/early")).body == b"new"


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [(b"", 502, None), (b"HTTP/1.1 403 Forbidden\r\n\r\nno uploads", 403, b"no uploads")],
)
async def test_an_upstream_that_ends_its_side_and_reads_no_more_of_an_upload_has_ended_its_reply(
    proxies: MakeProxy, origins: MakeOrigin, sent: bytes, status: int, body: bytes | None
) -> None:
    async def half_close(request: Request) -> None:
        request.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(lambda: any(each.upload_is_held for each in proxy.server.clients.connections))
        request.wire.writer.write(sent)
        request.wire.writer.write_eof()
        await over.wait()

    over = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(half_close))
    wire = await proxy.connect()
    wire.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n" + bytes(20_000_000))
    reply = await wire.reply()
    over.set()
    assert reply.status == status
    assert body is None or reply.body == body
    await proxy.at_rest()


async def test_a_client_that_pipelines_and_does_not_read_is_not_served_ahead(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def large(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + bytes(50000))

    proxy = await proxies()
    origin = await origins(large)
    proxy.route("/", origin)
    wire = await proxy.connect()
    stop_reading(wire)
    wire.writer.write(GET * 3000)
    await eventually(lambda: len(origin.requests) > 5)
    assert await settled(lambda: len(origin.requests)) < 500
    wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(3000):
        assert len((await wire.reply()).body) == 50000


async def test_a_client_that_pipelines_errors_and_does_not_read_is_not_answered_ahead(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies(access_log="off")
    proxy.route("/api", origin)
    wire = await proxy.connect()
    stop_reading(wire)
    wire.writer.write(GET * 100_000)
    await eventually(lambda: sum(proxy.counted().values()) > 5)
    assert await settled(lambda: sum(proxy.counted().values())) < 50_000


async def test_a_client_that_pipelines_and_never_reads_is_cut_off(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(access_log="off", keepalive_timeout="100ms")
    proxy.route("/api", origin)
    wire = await proxy.connect()
    stop_reading(wire)
    wire.writer.write(GET * 100_000)
    await eventually(lambda: proxy.metrics.clients.connections() == 1)
    await eventually(lambda: proxy.metrics.clients.connections() == 0)


async def test_a_flood_of_empty_lines_is_skipped(proxy: Proxy) -> None:
    wire = await proxy.connect()
    await wire.send(b"\r\n" * 100_000 + GET)
    assert (await wire.reply()).status == 200


async def test_a_head_that_drips_in_is_judged_once(
    proxy: Proxy, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last bytes of a long head would cost as much as all before, each."""
    judged = []

    def counting(line: bytes) -> RequestLine:
        judged.append(line)
        return parse_line(line)

    monkeypatch.setattr(reader, "parse_line", counting)
    wire = await proxy.connect()
    for byte in b"\r\nGET / HTTP/1.1\r\nHost: h\r\nX-Padding: abcdefgh\r\n\r\n":
        await wire.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await wire.reply()).status == 200
    assert len(judged) <= 1


@pytest.mark.parametrize("at", [1, 5, 16, 17, 20, 24, 25, 26, 27, 30])
async def test_a_bare_line_feed_is_refused_wherever_the_packet_ends(proxy: Proxy, at: int) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: h\nX: a\r\n"
    wire = await proxy.connect()
    await wire.send(raw[:at])
    await asyncio.sleep(0.01)
    await wire.send(raw[at:])
    assert (await wire.reply()).status == 400
