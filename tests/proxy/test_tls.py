"""TLS on the listener, on real sockets with certificates of a private authority."""

import asyncio
import contextlib
import ssl

import pytest

from slb.proxy import client_connection
from tests.proxy.harness import MakeOrigin, MakeProxy, Origin, Request
from tests.proxy.tls_rig import names_for, secure_proxy
from tests.support.certificates import Authority
from tests.support.waiting import eventually, settled


async def test_requests_over_tls_are_https_to_the_upstream(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    for _ in range(3):
        assert (await wire.get()).body == b"ok"
    assert [each.one("X-Forwarded-Proto") for each in origin.requests] == ["https"] * 3
    assert origin.requests[0].one("X-Forwarded-For") == "127.0.0.1"
    assert proxy.logged()[0]["client"] == "127.0.0.1"


async def test_the_certificate_is_chosen_by_the_name_asked_for(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    pairs = [
        authority.issue("first", "first.test"),
        authority.issue("second", "second.test", "*.second.test"),
        authority.issue("third", "www.second.test"),
    ]
    proxy = await secure_proxy(proxies, origin, *pairs)
    second, third = {"second.test", "*.second.test"}, {"www.second.test"}
    assert await names_for(proxy, authority, "second.test") == second
    assert await names_for(proxy, authority, "API.Second.test") == second
    assert await names_for(proxy, authority, "www.second.test") == third
    for stranger in ("a.b.second.test", "other.test", "test", None):
        assert await names_for(proxy, authority, stranger) == {"first.test"}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_only_http_1_is_agreed_on(
    proxies: MakeProxy, origin: Origin, authority: Authority, version: ssl.TLSVersion
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    wire = await proxy.connect(ssl=context, server_hostname="a.test")
    assert wire.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    assert (await wire.get()).status == 200


async def test_bodies_stream_both_ways_over_tls(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def echo(request: Request) -> None:
        body = await request.body()
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    proxy = await secure_proxy(proxies, await origins(echo), authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    sent = bytes(range(256)) * 8192
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(sent)
    await wire.send(head + sent[: 1 << 20])
    await wire.send(sent[1 << 20 :])
    assert (await wire.reply()).body == sent


async def test_a_slow_client_over_tls_holds_the_upstream_back(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def flood(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        for _ in range(200):
            await request.wire.send(bytes(1 << 20))
            sent.append(1)

    sent: list[int] = []
    proxy = await secure_proxy(proxies, await origins(flood), authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert await settled(lambda: len(sent)) < 50, "the proxy takes in what its client does not take off it"
    wire.reset()
    await proxy.at_rest()


async def test_a_refused_upload_can_read_its_answer_and_then_sees_the_end(
    proxies: MakeProxy, origin: Origin, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "_LINGER", 1000.0)
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), max_body=1000)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" + bytes(100_000))
    with contextlib.suppress(ConnectionError):
        await wire.send(bytes(500_000))
    reply = await wire.reply()
    assert (reply.status, reply.reason) == (413, "body_too_large")
    assert await wire.ended()
    wire.close()
    await eventually(lambda: proxy.metrics.clients.connections() == 0)


async def test_an_idle_connection_over_tls_ends_when_draining(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.get()
    drain = asyncio.create_task(proxy.server.drain(5))
    assert await wire.ended()
    wire.close()
    assert await drain == 0


async def test_the_applications_get_connections_over_tls_too(
    proxies: MakeProxy, origin: Origin, authority: Authority
) -> None:
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"))
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    assert (await wire.get("/_slb/healthz")).body == b"mine"
    assert origin.requests == []


async def test_a_tunnel_goes_through_tls_on_both_sides_and_ends_with_either(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def shout(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        while data := await request.wire.reader.read(65536):
            await request.wire.send(data.upper())

    origin = await origins(shout, tls=authority.server("127.0.0.1"))
    proxy = await secure_proxy(proxies, origin, authority.issue("a", "a.test"), upstream_ca=authority.file)
    wire = await proxy.connect(ssl=authority.client(), server_hostname="a.test")
    await wire.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly ")
    first, _ = await wire.head()
    assert first == "HTTP/1.1 101 Switching Protocols"
    await wire.send(b"and late")
    assert await wire.reader.readexactly(14) == b"EARLY AND LATE"
    assert proxy.inflight() == 1
    wire.close()
    await proxy.at_rest()
    await eventually(lambda: origin.open == 0)
    assert proxy.counted() == {(101, ""): 1}
