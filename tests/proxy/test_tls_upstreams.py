"""TLS towards upstreams, on real sockets with certificates of a private authority."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from slb.addresses import AddressRules
from slb.health.probe import Prober
from slb.model import HealthCheck, Upstream
from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Proxy, Request
from tests.proxy.tls_rig import following
from tests.support.certificates import Authority
from tests.support.waiting import until


async def test_an_upstream_with_a_certificate_of_a_known_authority_is_spoken_to(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    origin = await origins(tls=authority.server("127.0.0.1", "localhost"))
    proxy = await proxies(upstream_ca=authority.file)
    proxy.route("/address", origin)
    proxy.route("/name", origin.member.replace("127.0.0.1", "localhost"))
    assert (await proxy.get("/address")).status == 200
    assert (await proxy.get("/name")).status == 200
    assert [each.one("X-Forwarded-Proto") for each in origin.requests] == ["http", "http"]
    assert (await proxy.get("/address")).status == 200
    assert origin.connections == 2, "connections over TLS are pooled"


@pytest.mark.parametrize("name", ["other.test", "127.0.0.2"])
async def test_an_upstream_with_another_ones_certificate_gets_no_request(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority, name: str
) -> None:
    origin = await origins(tls=authority.server(name))
    proxy = await proxies(upstream_ca=authority.file, client_detail="full")
    proxy.route("/", origin)
    reply = await proxy.get()
    assert (reply.status, reply.reason) == (502, "upstream_connect")
    assert b"certificate verify failed: IP address mismatch" in reply.body
    assert origin.requests == []


async def test_an_upstream_of_an_unknown_authority_gets_no_request(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    origin = await origins(tls=authority.server("127.0.0.1"))
    proxy = await proxies(client_detail="full")
    proxy.route("/", origin)
    reply = await proxy.get()
    assert (reply.status, reply.reason) == (502, "upstream_connect")
    assert b"certificate verify failed: unable to get local issuer certificate" in reply.body


async def test_an_upstream_without_tls_is_named_as_such(proxies: MakeProxy) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK)
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    proxy = await proxies(client_detail="full")
    proxy.route("/", f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    reply = await proxy.get()
    server.close()
    assert (reply.status, reply.reason) == (502, "upstream_connect")
    assert b"TLS: wrong version number" in reply.body


async def test_slb_shows_its_own_certificate_to_upstreams_that_ask(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    own, _, key = authority.issue("own", "slb.test").partition(":")
    origin = await origins(tls=authority.demanding_server("127.0.0.1"))
    known = await proxies(upstream_ca=authority.file, upstream_certificate=own, upstream_key=key)
    unknown = await proxies(upstream_ca=authority.file)
    for proxy in (known, unknown):
        proxy.route("/", origin)
    assert (await known.get()).status == 200
    assert (await unknown.get()).status == 502
    assert len(origin.requests) == 1


async def test_a_reply_that_ends_with_the_connection_is_whole_only_with_a_close_notify(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    async def until_close(request: Request) -> None:
        await request.wire.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        if request.target == "/notified":
            request.wire.close()
        else:  # as a man in the middle would end it
            raw: Any = request.wire.writer.get_extra_info("socket")
            with socket.socket(fileno=socket.dup(raw.fileno())) as copy:
                copy.shutdown(socket.SHUT_WR)
            await request.wire.ended()

    origin = await origins(until_close, tls=authority.server("127.0.0.1"))
    proxy = await proxies(upstream_ca=authority.file)
    proxy.route("/", origin)
    assert (await proxy.get("/notified")).body == b"all of it"
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await proxy.get("/cut")


async def test_a_renewed_authority_is_trusted_without_a_restart(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    renewed = Authority(tmp_path / "new")
    origin = await origins(tls=renewed.server("127.0.0.1"))
    proxy = await proxies(upstream_ca=authority.file)
    proxy.route("/", origin)
    assert (await proxy.get()).status == 502
    async with following(proxy):
        authority.write("authority.pem", renewed.file.read_bytes())
        await eventually_served(proxy)


async def eventually_served(proxy: Proxy) -> None:
    await until(proxy.get, lambda reply: reply.status == 200)


async def test_health_checks_know_the_authorities_that_requests_know(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority
) -> None:
    own, _, key = authority.issue("own", "slb.test").partition(":")
    origin = await origins(tls=authority.demanding_server("127.0.0.1"))
    proxy = await proxies(upstream_ca=authority.file, upstream_certificate=own, upstream_key=key)
    rules, check = AddressRules((), lambda: ()), HealthCheck("/healthz", interval=1, timeout=5, rise=1, fall=1)
    for tls, passes in ((proxy.server.upstream_tls, True), (None, False)):
        prober = Prober(rules, tls)
        assert (await prober.fault(Upstream.of(origin.member), check) is None) is passes
        await prober.aclose()
