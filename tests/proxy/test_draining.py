"""What holds a drain, and what does not."""

import asyncio

import pytest

from slb.proxy import entrance, listener
from tests.proxy.harness import PATIENCE, MakeProxy, Origin, Wire
from tests.support.certificates import Authority
from tests.support.waiting import eventually

LONG = 1000.0
"""Seconds: many times what a test takes."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the drain ends a handshake."""
    monkeypatch.setattr(entrance, "HANDSHAKE_TIMEOUT", LONG)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"], ids=["nothing", "half a hello"])
async def test_a_handshake_that_never_ends_does_not_hold_a_drain(
    proxies: MakeProxy, origin: Origin, authority: Authority, said: bytes
) -> None:
    proxy = await proxies(tls_certificates=(authority.issue("a", "a.test"),))
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(said)
    await eventually(lambda: proxy.server.arriving == 1)
    assert await asyncio.wait_for(proxy.server.drain(LONG), PATIENCE) == 0
    assert await wire.ended()
    assert proxy.server.arriving == 0


async def test_a_proxy_header_that_never_ends_does_not_hold_a_drain(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(proxy_protocol=True, trusted_proxies="127.0.0.0/8", head_timeout="1000s")
    proxy.route("/", origin)
    wire = await proxy.connect()
    await wire.send(b"PROXY TCP4 192.0")
    await eventually(lambda: proxy.server.arriving == 1)
    assert await asyncio.wait_for(proxy.server.drain(LONG), PATIENCE) == 0
    assert await wire.ended()


async def test_handshakes_go_on_while_any_of_them_gets_through(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    """A thousand handshakes take their time; one that waits for its turn is not one that hangs."""
    proxy = await proxies(tls_certificates=(authority.issue("a", "a.test"),))
    proxy.route("/", origin)
    proxy.server._drain_timing = listener.DrainTiming(handshakes=0.01, quiet=0.05, arrivals=1.5)
    arriving = [await asyncio.open_connection(*proxy.address) for _ in range(6)]
    await eventually(lambda: proxy.server.arriving == 6)
    drain = asyncio.create_task(proxy.server.drain(LONG))
    statuses = []
    for reader, writer in arriving:  # for longer, all of them together, than nobody may get through
        await asyncio.sleep(0.3)
        await writer.start_tls(authority.client(), server_hostname="a.test")
        statuses.append((await Wire(reader, writer).get()).status)
        writer.close()
    assert statuses == [200] * 6
    assert await asyncio.wait_for(drain, PATIENCE) == 0
