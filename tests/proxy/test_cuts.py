"""The network between slb and an upstream is cut without a word."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from slb.upstreams import reach
from slb.upstreams.early_reply import unacknowledged
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Proxy, Reply, Request, Wire, ask, wait_for_end
from tests.support.hosts import Host, can_be_had
from tests.support.waiting import eventually, soon, until
from tests.support.witness import Recorder

pytestmark = pytest.mark.skipif(not can_be_had(), reason="network namespaces need root, and `ip` of iproute2")
BODY = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


async def begun(proxy: Proxy, origin: Origin, request: bytes) -> "asyncio.Task[Reply]":
    """A request that its upstream has."""
    wire = await proxy.connect()
    sending = asyncio.create_task(wire.send(request))
    await eventually(lambda: len(origin.requests) == 1, what="the request has not come")
    asked = asyncio.create_task(wire.reply())
    asked.add_done_callback(lambda _: sending.cancel())
    return asked


async def cut_when_pooled(proxies: MakeProxy, origins: MakeOrigin, host: Host) -> tuple[Proxy, Wire]:
    """A proxy with a connection in its pool to a host that is cut now, and the client that was served by it."""
    origin = await origins(listener=host.listener())
    proxy = await proxies()
    proxy.route("/", origin, retries="0")
    wire = await proxy.connect()
    assert (await wire.get()).status == 200
    host.cut()
    return proxy, wire


def looks_of(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each look from now on finds: whether the connection is cut."""
    looks: list[bool] = []
    looked = reach.Lookout._is_cut

    def counted(lookout: reach.Lookout) -> bool:
        looks.append(looked(lookout))
        return looks[-1]

    monkeypatch.setattr(reach.Lookout, "_is_cut", counted)
    return looks


@pytest.mark.parametrize("size", [2, 8 << 20])
async def test_a_request_that_waits_for_its_first_byte_is_told(
    proxies: MakeProxy, origins: MakeOrigin, host: Host, size: int
) -> None:
    """Whatever the first byte may take. Of the longer body more waits than kernels hold."""
    origin = await origins(wait_for_end, listener=host.listener())
    proxy = await proxies()
    witness = proxy.server.context.witness = Recorder()
    proxy.route("/", origin, first_byte_timeout="600s")
    asked = await begun(proxy, origin, BODY % size + bytes(size))
    host.cut()
    reply = await asked
    assert (reply.status, reply.reason) == (502, "upstream_unreached")
    assert witness.failures == [(origin.member, "upstream_unreached")]
    assert "has confirmed nothing for 5 s" in proxy.logged()[-1]["detail"]


async def test_so_is_one_that_is_sent_into_the_void(proxies: MakeProxy, origins: MakeOrigin, host: Host) -> None:
    """The pooled connection is from before the cut."""
    _, wire = await cut_when_pooled(proxies, origins, host)
    reply = await wire.get()
    assert (reply.status, reply.reason) == (502, "upstream_unreached")


async def test_an_upstream_that_takes_its_time_and_reads_nothing_is_left_in_peace(
    proxies: MakeProxy, origins: MakeOrigin, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of which the upstream reads nothing, for much longer than a confirmation may take."""
    monkeypatch.setattr(reach, "UNCONFIRMED", 0.5)
    looks = looks_of(monkeypatch)
    go_on = asyncio.Event()

    async def read_late(request: Request) -> None:
        await go_on.wait()
        body = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nX-Took: %d\r\nContent-Length: 2\r\n\r\nok" % len(body))

    origin = await origins(read_late, listener=host.listener())
    proxy = await proxies()
    proxy.route("/", origin)
    asked = await begun(proxy, origin, BODY % (32 << 20) + bytes(32 << 20))
    await eventually(lambda: len(looks) >= 3, what="nobody looks after it")
    go_on.set()
    assert (await asked).one("X-Took") == str(32 << 20)
    assert not any(looks)


async def test_a_cut_that_heals_in_time_costs_nothing(proxies: MakeProxy, origins: MakeOrigin, host: Host) -> None:
    proxy, _ = await cut_when_pooled(proxies, origins, host)
    asked = ask(proxy, "/")
    await eventually(lambda: proxy.inflight() == 1, what="it was not sent")
    host.heal()
    assert (await asked).status == 200


async def test_requests_for_an_upstream_out_of_reach_end_at_once_until_it_is_back(
    proxies: MakeProxy, origins: MakeOrigin, host: Host
) -> None:
    origin = await origins(listener=host.listener())
    proxy = await proxies()
    proxy.route("/", origin, retries="0", connect_timeout="0.2s", eject_after="0")
    assert (await proxy.get()).status == 200
    with capture_logs() as logs:
        host.cut()
        while (reply := await proxy.get()).reason == "upstream_unreached":  # on a connection from before
            pass
        await eventually(lambda: "upstream_out_of_reach" in [each["event"] for each in logs], what="nobody looks")
        reply = await proxy.get()
        assert (reply.status, reply.reason) == (502, "upstream_unreached")
        assert "out of reach" in proxy.logged()[-1]["detail"]
        host.heal()
        await eventually(lambda: "upstream_in_reach" in [each["event"] for each in logs], what="nobody sees it")
    assert (await proxy.get()).status == 200


async def test_a_tunnel_ends_though_its_client_goes_on_sending(
    proxies: MakeProxy, origins: MakeOrigin, host: Host
) -> None:
    async def switch(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        await request.wire.ended()

    proxy = await proxies()
    proxy.route("/", await origins(switch, listener=host.listener()))
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
    await wire.head()
    host.cut()

    async def send_on() -> bool:
        if not wire.writer.is_closing():
            with contextlib.suppress(ConnectionError):
                await wire.send(b"more")
        return proxy.inflight() == 0

    await until(send_on, bool, what="the tunnel has its slot still")


@pytest.mark.parametrize("size", [2, 8 << 20])
async def test_a_reply_that_pauses_in_its_middle_ends_too(
    proxies: MakeProxy, origins: MakeOrigin, host: Host, size: int
) -> None:
    """slb sends nothing meanwhile: its kernel asks whether the other one is there."""

    async def pause(request: Request) -> None:
        await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await request.wire.ended()

    origin = await origins(pause, listener=host.listener())
    proxy = await proxies()
    witness = proxy.server.context.witness = Recorder()
    proxy.route("/", origin, idle_timeout="600s")
    wire = await proxy.connect()
    await wire.send(BODY % size + bytes(size))
    await wire.head()
    own = origin.requests[0].wire.writer.get_extra_info("socket")
    await eventually(lambda: not unacknowledged(own), what="slb's kernel confirms nothing")  # else it is sent again
    host.cut()
    assert await soon(wire.reader.read()) == b"half"
    assert witness.failures == [(origin.member, "upstream_unreached")]


async def test_an_upstream_with_little_room_that_reads_nothing_is_left_in_peace(
    proxies: MakeProxy, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is short, and does not fit all the same."""
    monkeypatch.setattr(reach, "UNCONFIRMED", 0.5)
    looks = looks_of(monkeypatch)
    loop, listener, size = asyncio.get_running_loop(), host.listener(), 12_000
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    listener.setblocking(False)
    proxy = await proxies()
    proxy.route("/", "{}:{}".format(*listener.getsockname()))
    wire = await proxy.connect()
    await wire.send(BODY % size + bytes(size))
    accepted, _ = await loop.sock_accept(listener)
    with listener, accepted:
        await eventually(lambda: len(looks) >= 3, what="nobody looks after it")
        left = size
        head, _, body = (await loop.sock_recv(accepted, 1000)).partition(b"\r\n\r\n")
        assert head.startswith(b"POST")
        left -= len(body)
        while left:
            got = await loop.sock_recv(accepted, 1000)
            assert got, "it was cut off"
            left -= len(got)
        await loop.sock_sendall(accepted, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert (await wire.reply()).status == 200
    assert not any(looks)
