"""What other proxies' bug trackers teach: small things on which messages, connections and slots were lost."""

import asyncio
import socket

import pytest

from slb.proxy.states import ClientState
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, sends
from tests.support.waiting import eventually, soon

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_all_connection_lines_count_and_empty_tokens_do_not(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: , ,A\r\nB: 2\r\nConnection:\r\nconnection: b ,,\r\nA: 1\r\nC: 3\r\n\r\n"
    )
    assert (await wire.reply()).status == 200
    seen = origin.requests[0]
    assert (seen.all("A"), seen.all("B"), seen.all("C"), seen.all("Connection")) == ([], [], ["3"], [])


@pytest.mark.parametrize(
    ("sent", "kept"), [("trailers", ["trailers"]), ("gzip", []), ("gzip;q=1, Trailers", ["trailers"])]
)
async def test_of_te_only_trailers_passes(proxy: Proxy, origin: Origin, sent: str, kept: list[str]) -> None:
    await proxy.get("/", TE=sent, Connection="TE")
    assert origin.requests[0].all("TE") == kept
    assert origin.requests[0].all("Connection") == ["TE"] * len(kept)


async def test_repeated_headers_keep_their_order_and_their_number(proxies: MakeProxy, origins: MakeOrigin) -> None:
    origin = await origins(
        sends(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX: 1\r\nSet-Cookie: b=2\r\nX: 2\r\nContent-Length: 0\r\n\r\n")
    )
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(
        b"GET / HTTP/1.1\r\nCookie: a=1\r\nHost: h:8080\r\nCookie: b=2\r\naccept: x\r\nAccept: y\r\n\r\n"
    )
    reply = await wire.reply()
    assert (reply.all("Set-Cookie"), reply.all("X")) == (["a=1", "b=2"], ["1", "2"])
    seen = origin.requests[0]
    assert (seen.all("Cookie"), seen.all("Accept"), seen.all("Host")) == (["a=1", "b=2"], ["x", "y"], ["h:8080"])


async def test_an_absolute_target_overrules_another_host(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(b"GET http://real.test:81/a HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert (await wire.reply()).status == 200
    seen = origin.requests[0]
    assert (seen.target, seen.all("Host"), seen.all("X-Forwarded-Host")) == (
        "/a",
        ["real.test:81"],
        ["real.test:81"],
    )


@pytest.mark.parametrize("late", [False, True])
async def test_a_body_behind_a_reply_to_head_reaches_no_client(
    proxies: MakeProxy, origins: MakeOrigin, late: bool
) -> None:
    async def broken(request: Request) -> None:
        if request.method != "HEAD":
            await request.wire.send(OK)
            return
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        await asyncio.sleep(0.01 * late)
        await request.wire.send(b"HTTP/")

    proxy = await proxies()
    origin = await origins(broken)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await wire.reply("HEAD")).one("Content-Length") == "5"
    await eventually(lambda: origin.open == 0)
    assert (await wire.get("/")).body == b"ok"


async def test_a_304_may_name_a_length_it_does_not_have(proxies: MakeProxy, origins: MakeOrigin) -> None:
    proxy = await proxies()
    origin = await origins(sends(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"))
    proxy.route("/", origin)
    wire = await proxy.connect()
    replies = [await wire.get("/") for _ in range(2)]
    assert [(reply.status, reply.one("Content-Length")) for reply in replies] == [(304, "5")] * 2
    assert origin.connections == 1


@pytest.mark.parametrize("reason", [b"OK\rSet-Cookie: a=b", b"OK\x00", b"OK\nSet-Cookie: a=b"])
async def test_a_reason_phrase_splits_no_reply(proxies: MakeProxy, origins: MakeOrigin, reason: bytes) -> None:
    proxy = await proxies()
    proxy.route("/", await origins(sends(b"HTTP/1.1 200 %b\r\nContent-Length: 0\r\n\r\n" % reason)))
    reply = await proxy.get("/")
    assert (reply.reason, reply.all("Set-Cookie")) == ("upstream_protocol", [])


async def test_a_header_as_long_as_the_limit_passes_and_one_byte_more_does_not(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies(max_head=2000)
    proxy.route("/", origin)
    start = b"GET / HTTP/1.1\r\nHost: h\r\nX: "
    for padding, status in ((2000 - len(start) - 4, 200), (2000 - len(start) - 3, 431)):
        wire = await proxy.connect()
        await wire.send(start + b"a" * padding + b"\r\n\r\n")
        assert (await wire.reply()).status == status


async def test_an_upstream_that_never_sends_100_gets_the_body_when_it_comes(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    await eventually(lambda: len(origin.requests) == 1)
    await wire.send(b"hi")
    assert (await wire.reply()).status == 200
    assert origin.requests[0].whole == b"hi"


async def test_nothing_is_served_behind_connection_close(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    await wire.send(GET + b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + GET)
    assert [(await wire.reply()).status for _ in range(2)] == [200, 200]
    assert await wire.ended()
    assert [request.target for request in origin.requests] == ["/", "/last"]


async def test_a_client_that_sends_on_behind_its_last_request_gets_the_last_reply_whole(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """A connection closed on unread bytes is reset, and what is still on its way is lost (RFC 9112, 9.6)."""

    async def large(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + bytes(50000))

    proxy = await proxies(max_requests_per_connection=1)
    proxy.route("/", await origins(large))
    with socket.socket() as narrow:
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(proxy.address)
        narrow.sendall(2 * GET)
        await eventually(lambda: bool(proxy.counted()))
        await eventually(
            lambda: all(each.state == ClientState.LINGERING for each in proxy.server.clients.connections)
        )
        narrow.sendall(GET)
        narrow.setblocking(False)
        got = 0
        while data := await soon(asyncio.get_running_loop().sock_recv(narrow, 65536)):
            got += len(data)
    assert got > 50000
    assert proxy.counted() == {(200, ""): 1}


@pytest.mark.parametrize(
    ("path", "closes", "reason"),
    [("/none", True, "no_route"), ("/empty", True, "no_upstream"), ("/empty", False, "no_upstream")],
)
async def test_a_client_that_sends_on_behind_a_last_request_that_slb_answers_itself_is_not_reset(
    proxies: MakeProxy, path: str, closes: bool, reason: str
) -> None:
    proxy = await proxies(max_requests_per_connection=0 if closes else 1)
    proxy.route("/empty")
    last = f"GET {path} HTTP/1.1\r\nHost: h\r\n{'Connection: close' if closes else 'A: b'}\r\n\r\n".encode()
    with socket.create_connection(proxy.address) as client:
        client.sendall(last + GET)
        await eventually(
            lambda: all(each.state == ClientState.LINGERING for each in proxy.server.clients.connections)
        )
        await eventually(lambda: bool(proxy.counted()))
        for _ in range(2):  # on a connection that is closed the first is answered with a reset, the second fails
            client.sendall(GET)
        client.setblocking(False)
        got = b""
        while data := await soon(asyncio.get_running_loop().sock_recv(client, 65536)):
            got += data
    assert got.count(b"HTTP/1.1 ") == 1
    assert reason.encode() in got
    assert sum(proxy.counted().values()) == 1


async def test_what_follows_an_early_reply_is_no_request(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def early(request: Request) -> None:
        await request.wire.send(OK)

    proxy = await proxies()
    origin = await origins(early)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nsome")
    assert (await wire.reply()).body == b"ok"
    await wire.send(GET)
    assert await wire.ended()
    assert [request.method for request in origin.requests] == ["POST"]
    assert (await proxy.get("/")).body == b"ok"
    assert origin.connections == 2


async def test_a_client_that_leaves_before_a_second_attempt_is_not_served(
    proxies: MakeProxy, origins: MakeOrigin, origin: Origin
) -> None:
    async def busy(request: Request) -> None:
        wire.reset()
        await request.wire.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    proxy = await proxies()
    proxy.route("/", await origins(busy), await origins(busy))
    wire = await proxy.connect()
    await wire.send(GET)
    await eventually(lambda: sum(proxy.counted().values()) == 1)
    await proxy.at_rest()
    proxy.route("/", origin)
    assert (await proxy.get("/")).status == 200


async def test_an_upstream_that_closes_after_each_reply_serves_all(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def close(request: Request) -> None:
        await request.wire.send(OK)
        request.wire.close()
        raise ConnectionResetError

    proxy = await proxies()
    proxy.route("/", await origins(close))
    wire = await proxy.connect()
    assert [(await wire.get("/")).body for _ in range(20)] == [b"ok"] * 20


async def test_many_small_writes_make_one_body(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def drip(request: Request) -> None:
        for (
            byte
        ) in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n":
            await request.wire.send(bytes([byte]))
            await asyncio.sleep(0)

    proxy = await proxies()
    proxy.route("/", await origins(drip))
    wire = await proxy.connect()
    assert [(await wire.get("/")).body for _ in range(2)] == [b"abcde"] * 2
