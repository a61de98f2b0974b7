"""A proxy that speaks TLS, and the certificates that it shows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.proxy.harness import MakeProxy, Origin, Proxy, Wire
from tests.support.certificates import Authority


async def secure_proxy(proxies: MakeProxy, origin: Origin, *pairs: str, **settings: Any) -> Proxy:
    """A proxy that speaks TLS and leads to `origin`."""
    proxy = await proxies(tls_certificates=pairs, **settings)
    proxy.route("/", origin)
    return proxy


def names_shown(wire: Wire) -> set[str]:
    """The DNS names of the certificate that was shown."""
    shown = wire.writer.get_extra_info("ssl_object").getpeercert()
    return {value for kind, value in shown["subjectAltName"] if kind == "DNS"}


async def names_for(proxy: Proxy, authority: Authority, asked: str | None) -> set[str]:
    """The names of the certificate that a client that asks for `asked` gets."""
    context = authority.client()
    context.check_hostname = False
    wire = await proxy.connect(ssl=context, server_hostname=asked or "127.0.0.1")  # no SNI for an address
    try:
        return names_shown(wire)
    finally:
        wire.close()


@contextlib.asynccontextmanager
async def following(proxy: Proxy) -> AsyncIterator[None]:
    """The proxy looks at its files all the time."""
    task = asyncio.create_task(proxy.server.follow_files(period=0.01))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
