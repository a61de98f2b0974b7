"""What holds a drain, and what does not."""

import asyncio

import pytest

from slb.proxy import entrance, listener
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Request, Wire, wait_for_end
from tests.support.certificates import Authority
from tests.support.waiting import eventually, soon

LONG = 1000.0
"""Seconds: many times what a test takes."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the drain ends a handshake."""
    monkeypatch.setattr(entrance, "HANDSHAKE_TIMEOUT", LONG)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a hello"])
async def test_a_handshake_that_never_ends_does_not_hold_a_drain(
    proxies: MakeProxy, origin: Origin, authority: Authority, sent: bytes
) -> None:
    proxy = await proxies(tls_certificates=(authority.issue("a", "a.test"),))
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(sent)
    await eventually(lambda: proxy.server.arriving == 1)
    assert await soon(proxy.server.drain(LONG)) == 0
    assert await wire.ended()
    assert proxy.server.arriving == 0


async def test_a_proxy_header_that_never_ends_does_not_hold_a_drain(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(proxy_protocol=True, trusted_proxies="127.0.0.0/8", head_timeout="1000s")
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"PROXY TCP4 192.0")
    await eventually(lambda: proxy.server.arriving == 1)
    assert await soon(proxy.server.drain(LONG)) == 0
    assert await wire.ended()


async def test_handshakes_go_on_while_any_of_them_gets_through(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    """A thousand handshakes take their time; one that waits for its turn is not one that hangs."""
    patient = listener.DrainTiming(handshakes=0.01, quiet=0.05, arrivals=1.5)
    proxy = await proxies(drain=patient, tls_certificates=(authority.issue("a", "a.test"),))
    proxy.route("/", origin)
    arriving = [await asyncio.open_connection(*proxy.address) for _ in range(6)]
    await eventually(lambda: proxy.server.arriving == 6)
    drain = asyncio.create_task(proxy.server.drain(LONG))
    statuses = []
    for reader, writer in arriving:  # for longer, all of them together, than the time without a finished handshake
        await asyncio.sleep(0.3)
        await writer.start_tls(authority.client(), server_hostname="a.test")
        statuses.append((await Wire(reader, writer).get()).status)
        writer.close()
    assert statuses == [200] * 6
    assert await soon(drain) == 0


async def test_a_draining_proxy_finishes_what_it_has_and_takes_nothing_new(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    async def slow(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    go_on = asyncio.Event()
    proxy = await proxies()
    origin = await origins(slow)
    proxy.route("/", origin)
    busy, idle = await proxy.connect(), await proxy.connect()
    running = asyncio.create_task(busy.get("/"))
    await eventually(lambda: len(origin.requests) == 1)
    drained = asyncio.create_task(proxy.server.drain(5))
    assert await idle.ended()
    go_on.set()
    reply = await running
    assert (reply.status, reply.one("Connection")) == (200, "close")
    assert await drained == 0


async def test_a_drain_ends_in_time_and_logs_which_requests_it_cut_off(
    proxies: MakeProxy, origins: MakeOrigin
) -> None:
    proxy = await proxies()
    origin = await origins(wait_for_end)
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(origin.requests) == 1)
    assert await proxy.server.drain(0.05) == 1
    assert await wire.ended()
    await eventually(lambda: origin.open == 0)
