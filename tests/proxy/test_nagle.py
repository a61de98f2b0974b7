"""TCP_NODELAY on both sides: a small piece of a stream waits for no acknowledgement of the one before."""

import asyncio
import socket
from typing import Any

import pytest

from tests.proxy.harness import OK, MakeOrigin, MakeProxy, Request
from tests.support.certificates import Authority
from tests.support.waiting import eventually


def is_quick(transport: asyncio.BaseTransport) -> bool:
    """Whether the transport's socket has TCP_NODELAY."""
    return bool(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


@pytest.mark.parametrize("client", ["direct", "PROXY", "TLS"])
@pytest.mark.parametrize("upstream", ["plain", "TLS"])
async def test_both_sides_send_at_once(
    proxies: MakeProxy, origins: MakeOrigin, authority: Authority, client: str, upstream: str
) -> None:
    async def hold(request: Request) -> None:
        await go_on.wait()
        await request.wire.send(OK)

    go_on = asyncio.Event()
    settings: dict[str, Any] = {"upstream_ca": authority.file}
    if client == "TLS":
        settings["tls_certificates"] = (authority.issue("a", "a.test"),)
    if client == "PROXY":
        settings |= {"proxy_protocol": True, "trusted_proxies": "127.0.0.0/8"}
    proxy = await proxies(**settings)
    origin = await origins(hold, tls=authority.server("127.0.0.1") if upstream == "TLS" else None)
    proxy.route("/", origin)
    secure = {"ssl": authority.client(), "server_hostname": "a.test"} if client == "TLS" else {}
    wire = await proxy.connect(**secure)
    header = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n" if client == "PROXY" else b""
    await wire.send(header + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await eventually(lambda: len(origin.requests) == 1)
    (connection,) = proxy.server.clients.connections
    assert connection.exchange is not None
    assert connection.exchange.connection is not None
    assert is_quick(connection.transport)
    assert is_quick(connection.exchange.connection.transport)
    go_on.set()
    assert (await wire.reply()).status == 200
