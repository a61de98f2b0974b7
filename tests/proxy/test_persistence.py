"""Which connections go on behind a reply, on either side, and what Connection states of it (RFC 9112, 9.3)."""

import asyncio

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Origin, Proxy, Request, sends
from tests.support.waiting import soon


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.0 304 Not Modified\r\nConnection: keep-alive\r\n\r\n"),
    ],
)
async def test_a_reply_that_has_no_body_leaves_both_connections_open_whatever_its_head_states_of_one(
    proxies: MakeProxy, origins: MakeOrigin, method: str, head: bytes
) -> None:
    proxy = await proxies()
    origin = await origins(sends(head))
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(3):
        await wire.send(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        got = await wire.reply(method)
        assert (str(got.status), got.one("Connection")) == (head.split()[1].decode(), None)
    assert (len(origin.requests), origin.connections) == (3, 1)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\n\r\n",
    ],
)
async def test_an_upstream_that_closes_behind_its_reply_to_head_is_asked_on_another_connection(
    proxies: MakeProxy, origins: MakeOrigin, head: bytes
) -> None:
    proxy = await proxies()
    origin = await origins(sends(head))
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await wire.reply("HEAD")).status == 200
    assert origin.connections == 2


async def test_a_body_behind_a_reply_to_head_is_nobodys_reply(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def reply(request: Request) -> None:
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL" if request.method == "HEAD" else b"ok"
        length = b"" if request.method == "HEAD" else b"Content-Length: 2\r\n"
        await request.wire.send(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (length, body))

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(3):
        await wire.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await wire.reply("HEAD")).status == 200
        assert (await wire.get("/")).body == b"ok"


@pytest.mark.parametrize(
    "fields", ["Connection: close, keep-alive", "Connection: keep-alive\r\nConnection: close", "Connection: Close"]
)
async def test_close_wins_over_keep_alive_for_a_client_of_http_1_0(proxy: Proxy, fields: str) -> None:
    wire = await proxy.connect()
    await wire.send(f"GET / HTTP/1.0\r\n{fields}\r\n\r\n".encode())
    reply = await wire.reply()
    assert (reply.body, reply.one("Connection")) == (b"ok", None)
    assert await wire.ended()


@pytest.mark.parametrize("minor", [0, 1])
async def test_close_wins_where_slb_answers_itself_too(proxies: MakeProxy, minor: int) -> None:
    wire = await (await proxies()).connect()
    await wire.send(f"GET / HTTP/1.{minor}\r\nHost: h\r\nConnection: keep-alive, close\r\n\r\n".encode())
    assert (await wire.reply()).one("Connection") == (None, "close")[minor]
    assert await wire.ended()


CHUNKED_OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("status", [b"200 OK", b"303 See Other", b"404 Not Found"])
@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "head first"])
@pytest.mark.parametrize("framing", [OK, CHUNKED_OK], ids=["counted", "chunked"])
async def test_a_reply_before_the_end_of_its_request_announces_the_end_of_the_connection(
    proxies: MakeProxy, origins: MakeOrigin, status: bytes, pieces: int, framing: bytes
) -> None:
    async def early(request: Request) -> None:
        message = framing.replace(b"200 OK", status)
        head = message[: message.index(b"\r\n\r\n") + 4]
        if pieces == 2:
            await request.wire.send(head)
            await head_seen.wait()
            message = message.removeprefix(head)
        await request.wire.send(message)

    head_seen = asyncio.Event()
    proxy = await proxies()
    proxy.route("/", await origins(early))
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nsome")
    first, headers = await wire.head()
    head_seen.set()
    assert (first.encode(), dict(headers).get("Connection")) == (b"HTTP/1.1 " + status, "close")
    assert b"ok" in await soon(wire.reader.read())


async def test_a_reply_behind_its_request_announces_no_end(proxy: Proxy, origin: Origin) -> None:
    wire = await proxy.connect()
    for _ in range(2):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n")
        await wire.send(b"hi")
        assert (await wire.reply()).one("Connection") is None
    assert [request.whole for request in origin.requests] == [b"hi"] * 2


@pytest.mark.parametrize("fields", ["Upgrade: HTTP/2.0, TLS/1.3", "Upgrade: HTTP/2.0\r\nUpgrade: TLS/1.3"])
async def test_426_names_the_protocol_that_is_asked_for(
    proxies: MakeProxy, origins: MakeOrigin, fields: str
) -> None:
    """RFC 9110, 15.5.22: it has to have an Upgrade; and 7.8: which Connection has to name."""

    async def reply(request: Request) -> None:
        start = f"HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\n{fields}\r\n"
        await request.wire.send(start.encode() + b"Content-Length: 0\r\n\r\n")

    proxy = await proxies()
    origin = await origins(reply)
    proxy.route("/", origin)
    wire = await proxy.connect()
    for _ in range(2):
        got = await wire.get("/")
        assert (got.status, got.one("Upgrade")) == (426, "HTTP/2.0, TLS/1.3")
        assert got.one("Connection") == "Upgrade"
    assert origin.connections == 1
    last = await wire.get("/", Connection="close")
    assert (last.one("Upgrade"), last.all("Connection")) == ("HTTP/2.0, TLS/1.3", ["Upgrade", "close"])


async def test_other_replies_offer_no_upgrade_that_slb_has_not_been_asked_for(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def reply(request: Request) -> None:
        await request.wire.send(
            b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
        )

    proxy = await proxies()
    proxy.route("/", await origins(reply))
    got = await proxy.get("/")
    assert (got.status, got.all("Upgrade"), got.all("Connection")) == (200, [], [])
