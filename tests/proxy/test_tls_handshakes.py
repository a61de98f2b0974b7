"""Handshakes that fail, are cut off or never end, and which may go on meanwhile."""

import asyncio
import logging
import ssl

import orjson
import pytest

from slb.proxy import entrance
from tests.proxy.harness import MakeProxy, Origin, Wire
from tests.proxy.tls_rig import secure_proxy
from tests.support.certificates import Authority
from tests.support.waiting import eventually


async def test_old_versions_and_weak_ciphers_get_no_connection(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    old = authority.client()
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    weak = authority.client()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    for context in (old, weak):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await proxy.connect(ssl=context, server_hostname="a.test")
    await eventually(lambda: sum(proxy.metrics.tls.handshake_failures.values()) == 2)


async def test_a_client_in_its_handshake_when_the_drain_began_is_still_served(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    reader, writer = await asyncio.open_connection(*proxy.address)
    await eventually(lambda: proxy.server.arriving == 1)
    drain = asyncio.create_task(proxy.server.drain(5))
    await asyncio.sleep(0)
    await writer.start_tls(authority.client(), server_hostname="a.test")
    reply = await Wire(reader, writer).get()
    assert (reply.status, reply.one("Connection")) == (200, "close")
    writer.close()
    assert await drain == 0


async def test_a_failed_handshake_is_counted_and_leaves_no_traceback(
    proxies: MakeProxy, origin: Origin, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    with caplog.at_level(logging.INFO):
        plain = await proxy.connect()
        await plain.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await plain.reply()).status == 400
        assert await plain.ended()
        gone = await proxy.connect()
        gone.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await proxy.connect(ssl=ssl.create_default_context(), server_hostname="a.test")
        await eventually(lambda: sum(proxy.metrics.tls.handshake_failures.values()) == 3)
    assert caplog.records == []
    assert proxy.metrics.tls.handshake_failures == {"http_request": 1, "closed": 2}
    assert proxy.metrics.clients.connections() == 0


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", id="whole"),
        pytest.param(b"G", id="only its first byte"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 50000\r\n\r\n" + 50_000 * b"x", id="with a body"),
    ],
)
async def test_plain_http_is_answered_that_the_port_takes_https_only(
    proxies: MakeProxy, origin: Origin, authority: Authority, sent: bytes
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    plain = await proxy.connect()
    await plain.send(sent)
    reply = await plain.reply()
    assert (reply.status, reply.one("Connection")) == (400, "close")
    problem = orjson.loads(reply.body)
    assert (problem["error"], "HTTPS only" in problem["detail"]) == ("bad_request", True)
    assert problem["request_id"] == reply.one("X-Request-Id")
    assert await plain.ended()
    plain.close()
    await eventually(lambda: proxy.server.arriving == 0)
    assert (proxy.metrics.tls.handshake_failures, origin.requests) == ({"http_request": 1}, [])
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get()).status == 200


async def test_a_silent_client_is_cut_off_and_a_drain_does_not_wait_for_it(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    silent = await proxy.connect()
    await eventually(lambda: proxy.server.arriving == 1)
    assert await proxy.server.drain(0.1) == 0
    assert await silent.ended()
    assert proxy.server.arriving == 0


async def test_a_handshake_that_does_not_go_on_is_ended(
    proxies: MakeProxy, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "HANDSHAKE_TIMEOUT", 0.1)
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect()
    await wire.send(b"\x16\x03\x01")
    assert await wire.ended()
    assert proxy.metrics.tls.handshake_failures == {"timeout": 1}


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_peer"])
async def test_handshakes_beyond_a_limit_of_connections_are_turned_away(
    proxies: MakeProxy, origin: Origin, authority: Authority, limit: str
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), **{limit: 2})
    waiting = [await proxy.connect() for _ in range(2)]
    await eventually(lambda: proxy.server.arriving == 2)
    assert await (await proxy.connect()).ended()
    if limit == "max_connections_per_peer":
        other = await proxy.connect(ssl=authority.client(), server_hostname="a.test", local_addr=("127.0.0.2", 0))
        assert (await other.get()).status == 200
    waiting[0].close()
    await eventually(lambda: proxy.server.arriving == 1)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get()).status == 200
