"""The PROXY protocol on the listener: whose word is taken, and that all of slb sees the client it names."""

import asyncio
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from pytest_aiohttp import AiohttpServer
from structlog.testing import capture_logs

from slb.config import Settings
from slb.observe.metrics import Metrics
from slb.proxy import entrance
from tests.proxy.harness import MakeProxy, Origin, Proxy, Wire
from tests.proxy.test_accepting import Exhausted
from tests.support.certificates import Authority
from tests.support.proxy_header import SIGNATURE, version_2
from tests.support.waiting import eventually, soon

LINE = b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
IPV6 = version_2(
    0x21, 0x21, b"\x20\x01\x0d\xb8" + bytes(11) + b"\x07" + bytes(16) + b"\xdc\x04\x01\xbb" + b"\x04\x00\x01x"
)


async def behind(proxies: MakeProxy, origin: Origin, **settings: Any) -> Proxy:
    """A proxy that takes PROXY headers from loopback."""
    settings = {"proxy_protocol": True, "trusted_proxies": "127.0.0.0/8", **settings}
    proxy = await proxies(**settings)
    proxy.route("/", origin)
    return proxy


async def begin(proxy: Proxy, header: bytes) -> Wire:
    wire = await proxy.connect()
    await wire.send(header)
    return wire


@pytest.mark.parametrize(("header", "client"), [(LINE, "192.0.2.7"), (IPV6, "2001:db8::7")])
async def test_the_client_the_balancer_names_is_the_peer(
    proxies: MakeProxy, origin: Origin, header: bytes, client: str
) -> None:
    proxy = await behind(proxies, origin)
    wire = await begin(proxy, header)
    assert (await wire.get()).status == 200
    assert (await wire.get(X_Forwarded_For="10.9.9.9")).status == 200
    assert [each.one("X-Forwarded-For") for each in origin.requests] == [client, client]
    assert {line["client"] for line in proxy.logged()} == {client}


async def test_header_and_request_may_come_as_one_or_byte_by_byte(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await behind(proxies, origin)
    together = await begin(proxy, LINE + GET + GET)
    assert [(await together.reply()).status, (await together.reply()).status] == [200, 200]
    for header in (LINE, IPV6):
        wire = await proxy.connect()
        for place in range(len(header)):
            await wire.send(header[place : place + 1])
            await asyncio.sleep(0)
        assert (await wire.get()).status == 200


async def test_a_client_in_trusted_proxies_is_trusted_for_those_behind_it(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await behind(proxies, origin, trusted_proxies="127.0.0.0/8,192.0.2.0/24")
    wire = await begin(proxy, LINE)
    await wire.get(X_Forwarded_For="198.51.100.4")
    assert origin.requests[0].one("X-Forwarded-For") == "198.51.100.4, 192.0.2.7"


async def test_a_header_for_the_balancer_itself_makes_it_the_client(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await behind(proxies, origin)
    wire = await begin(proxy, version_2(0x20, 0x00, b""))
    await wire.get()
    assert origin.requests[0].one("X-Forwarded-For") == "127.0.0.1"


async def test_a_client_the_balancer_does_not_know_gets_none_of_its_trust(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await behind(proxies, origin)
    wire = await begin(proxy, b"PROXY UNKNOWN\r\n")
    await wire.get(X_Forwarded_For="198.51.100.4")
    assert origin.requests[0].one("X-Forwarded-For") == "unknown"


@pytest.mark.parametrize(
    "header",
    [GET, b"PROXY TCP4 192.0.2.7 203.0.113.1 56324\r\n" + GET, SIGNATURE + b"\x31\x11\x00\x00" + GET],
    ids=["none", "broken line", "version 3"],
)
async def test_a_connection_without_a_proper_header_is_ended(
    proxies: MakeProxy, origin: Origin, header: bytes
) -> None:
    proxy = await behind(proxies, origin)
    assert await (await begin(proxy, header)).ended()
    assert proxy.metrics.clients.proxy_protocol_refused == {"malformed": 1}
    assert origin.requests == []


async def test_no_other_peer_may_name_the_client(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await behind(proxies, origin, trusted_proxies="10.0.0.0/8")
    assert await (await begin(proxy, LINE + GET)).ended()
    assert proxy.metrics.clients.proxy_protocol_refused == {"untrusted": 1}
    assert origin.requests == []


async def test_a_header_that_does_not_come_in_time_ends_the_connection(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await behind(proxies, origin, head_timeout="100ms")
    assert await (await begin(proxy, LINE[:20])).ended()
    assert proxy.metrics.clients.proxy_protocol_refused == {"timeout": 1}


async def test_a_balancer_may_have_more_connections_arriving_than_one_peer_may_have(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await behind(proxies, origin, max_connections_per_peer=1)
    for _ in range(2):
        await proxy.connect()
    wire = await begin(proxy, LINE)
    assert (await wire.get()).status == 200


async def test_a_balancer_that_leaves_before_the_header_is_forgotten(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await behind(proxies, origin)
    wire = await begin(proxy, LINE[:20])
    await eventually(lambda: proxy.server.arriving == 1)
    wire.close()
    await eventually(lambda: proxy.server.arriving == 0)
    assert proxy.metrics.clients.proxy_protocol_refused == {"closed": 1}


async def test_without_the_setting_a_header_is_no_http(proxies: MakeProxy, origin: Origin) -> None:
    proxy = await proxies(trusted_proxies="127.0.0.0/8")
    proxy.route("/", origin)
    wire = await begin(proxy, LINE + GET)
    assert (await wire.reply()).status in (400, 505)
    assert origin.requests == []


@pytest.mark.parametrize("header", [LINE, IPV6], ids=["version 1", "version 2"])
async def test_tls_begins_behind_the_header(
    proxies: MakeProxy, origin: Origin, tmp_path: Path, header: bytes
) -> None:
    authority = Authority(tmp_path)
    proxy = await behind(proxies, origin, tls_certificates=(authority.issue("a", "a.test"),))
    wire = await begin(proxy, header)
    await wire.writer.start_tls(authority.client(), server_hostname="a.test")
    reply = await wire.get()
    assert reply.status == 200
    request = origin.requests[0]
    assert request.one("X-Forwarded-Proto") == "https"
    assert request.one("X-Forwarded-For") in ("192.0.2.7", "2001:db8::7")


async def test_the_applications_see_the_named_client_and_not_the_balancer_on_loopback(
    proxies: MakeProxy, origin: Origin, aiohttp_server: AiohttpServer
) -> None:
    async def client(request: web.Request) -> web.Response:
        reply = web.Response(text=str(request.remote))
        reply.force_close()
        return reply

    application = web.Application()
    application.router.add_get("/_slb/healthz", client)
    proxy = await behind(proxies, origin)
    proxy.applications = (await aiohttp_server(application)).handler
    wire = await begin(proxy, LINE)
    assert (await wire.get("/_slb/healthz")).body == b"192.0.2.7"
    wire = await begin(proxy, b"PROXY UNKNOWN\r\n")
    assert (await wire.get("/_slb/healthz")).body == b"unknown"


async def test_connections_that_have_not_named_their_client_do_not_hold_a_drain_beyond_its_time(
    proxies: MakeProxy, origin: Origin
) -> None:
    proxy = await behind(proxies, origin)
    wire = await begin(proxy, LINE[:20])
    await eventually(lambda: proxy.server.arriving == 1)
    assert await proxy.server.drain(0.1) == 0
    assert await wire.ended()


async def test_accepting_goes_on_once_there_are_descriptors_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(transport.get_extra_info("peername")[0].encode())
            transport.close()

    monkeypatch.setattr(entrance, "_PAUSE", 0.01)
    listener = Exhausted()
    listener.bind(("127.0.0.1", 0))
    address = listener.getsockname()
    doors = entrance.Entrance(Greeter, None, (ip_network("127.0.0.0/8"),), 10, 0, 0, Metrics())
    with capture_logs() as lines:
        doors.open(listener, 10)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(LINE)
        assert await soon(reader.read()) == b"192.0.2.7"
    writer.close()
    doors.close()
    assert [(line["event"], line["error"]) for line in lines] == [("accept_failed", "Too many open files")] * 2


def test_without_trusted_proxies_the_setting_makes_no_sense() -> None:
    with pytest.raises(ValidationError, match="set trusted_proxies"):
        Settings(proxy_protocol=True)
