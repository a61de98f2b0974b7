"""Connections to upstreams: kept, replaced, ended; and what becomes of them when their upstream leaves."""

import asyncio
import contextlib
import re
import resource
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.pool import Pool
from slb.upstreams.tls import UpstreamTls
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Request, answer_ok, port_that_never_accepts
from tests.support.waiting import eventually
from tests.support.witness import Recorder


async def leads_to_one_that_breaks_off(
    proxies: MakeProxy, origins: MakeOrigin, **settings: str
) -> tuple[Proxy, Origin]:
    """A proxy whose upstream gives its connection up just as the second request arrives, and answers all others."""

    async def once(request: Request) -> None:
        if len(origin.requests) == 2:
            request.wire.reset()
        else:
            await answer_ok(request)

    proxy = await proxies()
    origin = await origins(once)
    proxy.route("/", origin, **settings)
    return proxy, origin


async def test_a_connection_given_up_by_its_upstream_is_replaced_unseen(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """The client of a GET never notices."""
    proxy, origin = await leads_to_one_that_breaks_off(proxies, origins)
    wire = await proxy.connect()
    assert [(await wire.get("/")).status for _ in range(2)] == [200, 200]
    assert origin.connections == 2
    assert sum(proxy.metrics.retries.values()) == 0


async def test_a_body_that_ends_while_its_connection_is_replaced_arrives_whole_and_its_latency_counts(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy, origin = await leads_to_one_that_breaks_off(proxies, origins, policy="consistent_hash")
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200
    live = proxy.mirror.upstream(origin.member)
    assert live is not None
    made = proxy.server.context.pools.of(live)
    connect = made.connect

    async def slow(timeout: float) -> UpstreamConnection:
        await wire.send(b"hi")
        await eventually(lambda: wire_has_sent(proxy, b"hi"))
        return await connect(timeout)

    made.connect = slow  # type: ignore[method-assign]
    await wire.send(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n")
    assert (await wire.reply()).status == 200
    assert [request.whole for request in origin.requests] == [b"", b"", b"hi"]
    assert live.load_stats is not None
    assert live.load_stats.completed()[0] == 2


def wire_has_sent(proxy: Proxy, body: bytes) -> bool:
    """Whether this has come of the one upload that is under way."""
    uploads = [each.exchange.upload for each in proxy.server.clients.connections if each.exchange is not None]
    return [upload.held for upload in uploads if upload is not None] == [body]


async def test_a_post_is_not_sent_twice(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def once(request: Request) -> None:
        await request.body()
        if len(origin.requests) == 2:
            request.wire.reset()
            return
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    proxy = await proxies()
    origin = await origins(once)
    proxy.route("/", origin)
    wire = await proxy.connect()
    replies = []
    for _ in range(2):
        await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
        replies.append(await wire.reply())
    assert [reply.status for reply in replies] == [200, 502]
    assert replies[1].reason == "upstream_reset"
    assert len(origin.requests) == 2


async def test_what_an_idle_upstream_sends_unasked_ends_its_connection(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def chatter(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if len(origin.requests) == 1:
            await answered.wait()
            await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")

    answered = asyncio.Event()
    proxy = await proxies()
    origin = await origins(chatter)
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert (await wire.get("/")).body == b"ok"
    answered.set()
    await eventually(lambda: origin.open == 0)
    assert (await wire.get("/")).body == b"ok"


async def test_what_stands_behind_a_reply_poisons_nothing(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def too_much(request: Request) -> None:
        await request.wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
        )

    proxy = await proxies()
    origin = await origins(too_much)
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert [(await wire.get("/")).body for _ in range(3)] == [b"ok"] * 3
    assert origin.connections == 3


async def test_an_idle_upstream_connection_is_closed_in_time(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(upstream_keepalive_timeout="100ms")
    proxy.route("/", origin)
    wire = await proxy.connect()
    assert (await wire.get("/")).status == 200
    await eventually(lambda: origin.open == 0)


async def test_no_more_idle_connections_are_kept_than_set(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def together(request: Request) -> None:
        await all_there.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    all_there = asyncio.Event()
    proxy = await proxies(upstream_keepalive=2)
    origin = await origins(together)
    proxy.route("/", origin)
    wires = [await proxy.connect() for _ in range(5)]
    gets = [asyncio.create_task(wire.get("/")) for wire in wires]
    await eventually(lambda: len(origin.requests) == 5)
    all_there.set()
    assert [reply.status for reply in await asyncio.gather(*gets)] == [200] * 5
    await eventually(lambda: origin.open == 2)


async def test_an_upstream_that_is_taken_out_keeps_what_it_has_and_gets_nothing_new(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def slow(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")

    go_on = asyncio.Event()
    proxy = await proxies()
    old, new = await origins(slow), await origins()
    proxy.route("/", old)
    wire = await proxy.connect()
    running = asyncio.create_task(wire.get("/"))
    await eventually(lambda: len(old.requests) == 1)
    proxy.route("/", new)
    assert [(await proxy.get("/")).body for _ in range(3)] == [b"ok"] * 3
    go_on.set()
    assert (await running).body == b"old"
    await eventually(lambda: old.open == 0)


async def test_the_series_of_an_upstream_end_with_it(proxies: MakeProxy, origins: MakeOrigin) -> None:
    async def slow(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    go_on = asyncio.Event()
    proxy = await proxies()
    leaving = await origins(slow)
    proxy.route("/", leaving)
    wire = await proxy.connect()
    running = asyncio.create_task(wire.get("/"))
    await eventually(lambda: len(leaving.requests) == 1)
    proxy.route("/")
    go_on.set()
    assert (await running).status == 200
    assert [key for key, _ in proxy.metrics.traffic.requests() if key[1]] == []


async def test_an_upstream_that_leaves_and_returns_is_served_again(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies()
    for _ in range(3):
        proxy.route("/", origin)
        assert (await proxy.get("/")).status == 200
        proxy.route("/")
        assert (await proxy.get("/")).reason == "no_upstream"
    await eventually(lambda: origin.open == 0)


async def test_no_descriptor_left_here_is_503_and_ejects_no_upstream(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    """A client that opens connections until slb has no more of them must not have the fleet ejected by that."""
    proxy = await proxies()
    witness = proxy.server.context.witness = Recorder()
    proxy.route("/", await origins(), await origins())
    wire = await proxy.connect()
    assert (await wire.get("/_slb/")).status == 200
    proxy.server.context.pools.close()
    with no_more_descriptors():
        reply = await wire.get("/")
    assert (reply.status, reply.reason, reply.one("Retry-After")) == (503, "overloaded", "1")
    assert "Too many open files, here at slb" in proxy.logged()[-1]["detail"]
    assert (witness.failures, sum(proxy.metrics.retries.values())) == ([], 0)
    assert (await wire.get("/")).status == 200


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    """As if this process had as many files open as it may."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_connection_that_fails_for_an_unforeseen_reason_is_500_and_not_silence(
    proxies: MakeProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: UpstreamTls) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(UpstreamTls, "context", broken)
    proxy = await proxies()
    proxy.route("/", "https://127.0.0.1:1")
    with capture_logs() as logged:
        reply = await proxy.get("/")
    assert (reply.status, reply.reason) == (500, "internal")
    assert [(line["event"], line["exc_info"]) for line in logged] == [("connect_broke", True)]
    await proxy.at_rest()


async def test_an_address_that_keeps_silent_leaves_time_for_the_others_of_its_name(
    proxies: MakeProxy, origins: MakeOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a name has an IPv6 address that no packet reaches, and an IPv4 one that serves."""
    origin = await origins()
    listener, fillers, silent = port_that_never_accepts()
    port = int(silent.rpartition(":")[2])
    other = await asyncio.start_server(origin.accept, "127.0.0.2", port)

    async def both(_: Pool, __: str, ___: int) -> list[str]:
        return ["127.0.0.1", "127.0.0.2"]

    monkeypatch.setattr(Pool, "_addresses", both)
    proxy = await proxies()
    proxy.route("/", f"two.test:{port}", retries="0")
    try:
        assert (await proxy.get("/")).status == 200
        other.close()
        proxy.server.context.pools.close()
        reply = await proxy.get("/")
    finally:
        for each in (listener, *fillers):
            each.close()
    assert (reply.status, reply.reason) == (502, "upstream_connect")
    assert re.fullmatch(
        rf"two\.test:{port}: 127\.0\.0\.1 port {port}: no connection within 0\.\d+ s; "
        rf"127\.0\.0\.2 port {port}: Connection refused",
        proxy.logged()[-1]["detail"],
    )


async def test_a_name_is_asked_for_by_one_request_for_all_however_long_the_answer_takes(
    proxies: MakeProxy, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    answered = asyncio.Event()

    async def look_up(_: Pool, __: str, ___: int) -> list[str]:
        nonlocal asked
        asked += 1
        await answered.wait()
        return ["127.0.0.1"]

    monkeypatch.setattr(Pool, "_look_up", look_up)
    proxy = await proxies()
    member = f"slow.test:{origin.member.rpartition(':')[2]}"
    proxy.route("/", member, connect_timeout="50ms")
    for _ in range(2):
        replies = await asyncio.gather(*(proxy.get("/") for _ in range(5)))
        assert {reply.reason for reply in replies} == {"upstream_connect"}
    assert asked == 1
    proxy.route("/", member, connect_timeout="10s")
    waiting = asyncio.create_task(proxy.get("/"))
    await eventually(lambda: proxy.inflight() == 1)
    answered.set()
    assert (await waiting).status == 200
    assert asked == 1
    proxy.server.context.pools.close()
    assert (await proxy.get("/")).status == 200
    assert asked == 2
