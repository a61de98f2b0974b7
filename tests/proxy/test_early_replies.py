"""Replies to requests whose body is still on its way: they reach the client, and count against neither side."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from slb.proxy.exchange import Exchange
from slb.upstreams import connection as upstream_connection
from slb.upstreams.early_reply import unread_in
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request, Wire
from tests.proxy.refuser import MakeRefuser
from tests.support.certificates import Authority
from tests.support.waiting import eventually
from tests.support.witness import Recorder

TIMES = 40
SIZE = 4 << 20
HEAD = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % SIZE


async def upload(wire: Wire, message: bytes) -> Reply:
    """The reply to `message`, of which not everything may be taken."""
    sending = asyncio.create_task(wire.send(message))
    try:
        return await wire.reply()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def uploads(proxy: Proxy, message: bytes = HEAD + bytes(SIZE)) -> set[tuple[int, bytes]]:
    """Status and body of the replies to many."""
    seen = set()
    for _ in range(TIMES):
        wire = await proxy.connect()
        reply = await upload(wire, message)
        seen.add((reply.status, reply.body))
        wire.reset()
    return seen


async def test_no_reply_is_lost_when_its_upstream_closes_on_the_rest_of_the_body(
    proxies: MakeProxy, refusers: MakeRefuser
) -> None:
    proxy = await proxies()
    proxy.route("/", refusers().member)
    assert await uploads(proxy) == {(413, b"too much")}


async def test_nor_where_the_body_is_chunked(proxies: MakeProxy, refusers: MakeRefuser) -> None:
    proxy = await proxies()
    proxy.route("/", refusers().member)
    message = (
        b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n%b\r\n" % bytes(65536)) * 64
    )
    assert await uploads(proxy, message) == {(413, b"too much")}


async def test_nor_over_tls(proxies: MakeProxy, refusers: MakeRefuser, authority: Authority) -> None:
    proxy = await proxies(upstream_ca=authority.file)
    proxy.route("/", refusers(tls=authority.server("127.0.0.1")).member)
    assert await uploads(proxy) == {(413, b"too much")}


async def test_a_long_early_reply_comes_whole(proxies: MakeProxy, refusers: MakeRefuser) -> None:
    body = b"0123456789abcdef" * 1024
    proxy = await proxies()
    proxy.route("/", refusers(b"HTTP/1.1 401 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)).member)
    assert await uploads(proxy) == {(401, body)}


async def test_a_reply_in_many_chunks_comes_whole(proxies: MakeProxy, refusers: MakeRefuser) -> None:
    chunks = b"1\r\nx\r\n" * 400 + b"0\r\n\r\n"
    proxy = await proxies()
    proxy.route("/", refusers(b"HTTP/1.1 413 X\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).member)
    assert await uploads(proxy) == {(413, b"x" * 400)}


async def test_nothing_is_read_for_a_client_that_has_left(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pour(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + bytes(1 << 20))
        while True:
            await request.wire.send(bytes(1 << 20))

    read: list[int] = []

    def counting(duplicate: socket.socket) -> Iterator[bytes]:
        for data in unread_in(duplicate):
            read.append(len(data))
            yield data

    monkeypatch.setattr(upstream_connection, "unread_in", counting)
    proxy = await proxies()
    proxy.route("/", await origins(pour))
    wire = await proxy.connect()
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
    await wire.head()
    wire.reset()
    await proxy.at_rest()
    pool = next(iter(proxy.server.context.pools))
    await eventually(lambda: pool.open == 0, what="a connection is left")
    assert read == []


async def test_an_upload_that_was_taken_leaves_the_connection_one_descriptor(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await proxies()
    proxy.route("/", origin)
    wire = await proxy.connect()
    await upload(wire, b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000))
    pool = next(iter(proxy.server.context.pools))
    await eventually(lambda: len(pool.idle) == 1, what="the connection is not kept")
    assert pool.idle[0]._duplicate is None


async def test_the_reply_announces_that_the_connection_ends(proxies: MakeProxy, refusers: MakeRefuser) -> None:
    proxy = await proxies()
    proxy.route("/", refusers().member)
    reply = await upload(await proxy.connect(), HEAD + bytes(SIZE))
    assert reply.one("Connection") == "close"


async def test_no_descriptor_is_left_of_uploads(proxies: MakeProxy, refusers: MakeRefuser) -> None:
    proxy = await proxies()
    proxy.route("/", refusers().member)
    await uploads(proxy)
    pool = next(iter(proxy.server.context.pools))
    await eventually(lambda: pool.open == 0, what="a connection is left")


# -- no evidence against the upstream


async def test_an_upstream_that_closes_on_bodies_without_a_word_is_not_ejected_for_it(
    proxies: MakeProxy, refusers: MakeRefuser
) -> None:
    proxy = await proxies()
    witness = proxy.server.context.witness = Recorder()
    proxy.route("/", refusers(b"").member)
    reply = await upload(await proxy.connect(), HEAD + bytes(SIZE))
    assert (reply.status, reply.reason) == (502, "upstream_reset")
    assert witness.failures == []


async def test_nor_once_the_whole_body_has_left_the_client(proxies: MakeProxy, origins: MakeOrigin) -> None:
    """Kernels hold megabytes: the upstream may be sent all of a body of which it has read nothing."""
    whole = asyncio.Event()

    async def refuse(asked: Request) -> None:
        await whole.wait()
        asked.wire.reset()
        raise ConnectionResetError

    class Kept(Exchange):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            exchanges.append(self)

    exchanges: list[Exchange] = []
    proxy = await proxies()
    context = proxy.server.context
    witness = context.witness = Recorder()
    context.make_exchange, context.until_traced = Kept, 0.0
    proxy.route("/", await origins(refuse))
    wire = await proxy.connect()
    await wire.send(HEAD + bytes(SIZE))
    await eventually(lambda: bool(exchanges) and exchanges[0].request_ended, what="slb has not read the whole body")
    whole.set()
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (502, "upstream_reset")
    assert witness.failures == []


async def failures_of(proxies: MakeProxy, origins: MakeOrigin, answer: bytes, request: bytes) -> list[str]:
    """What is held against an upstream that answers a whole request with `answer`, and closes."""

    async def play(asked: Request) -> None:
        await asked.body()
        await asked.wire.send(answer)
        asked.wire.close()

    proxy = await proxies()
    witness = proxy.server.context.witness = Recorder()
    proxy.route("/", await origins(play), retries="0")
    wire = await proxy.connect()
    await wire.send(request)
    with contextlib.suppress(asyncio.IncompleteReadError):
        await wire.reply()
    await proxy.at_rest()
    return witness.reasons


POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        pytest.param(b"", ["upstream_reset"], id="none"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", ["upstream_reset"], id="half-a-200"),
        pytest.param(b"HTTP/1.1 429 X\r\nContent-Length: 9\r\n\r\nhalf", [], id="half-a-429"),
        pytest.param(b"HTTP/1.1 429 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nz", [], id="a-429-ill-framed"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: %b\r\n\r\n" % (b"x" * 70_000), [], id="a-head-too-long"),
        pytest.param(b"garbage\r\n\r\n", ["upstream_protocol"], id="not-http"),
    ],
)
async def test_what_a_client_can_provoke_is_no_evidence(
    proxies: MakeProxy, origins: MakeOrigin, answer: bytes, failures: list[str]
) -> None:
    assert await failures_of(proxies, origins, answer, POST) == failures


@pytest.mark.parametrize("size", [256 * 1024, 1 << 20])
async def test_a_reply_that_came_before_the_body_was_read_costs_the_next_request_nothing(
    proxies: MakeProxy, refusers: MakeRefuser, authority: Authority, size: int
) -> None:
    """All of the body has been handed to the system by then: the upstream's connection looked as good as new."""
    message = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (size, bytes(size))
    proxy = await proxies(upstream_ca=authority.file)
    proxy.route("/", refusers(tls=authority.server("127.0.0.1")).member)
    assert await uploads(proxy, message) == {(413, b"too much")}
