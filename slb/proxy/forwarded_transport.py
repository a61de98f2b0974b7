"""Connections whose client a balancer has named."""

import asyncio
from typing import Any, cast

Peer = tuple[Any, ...]
"""As the socket module has it: address, port, and for IPv6 two more."""


class Forwarded(asyncio.Protocol):
    """Begins a connection whose peer is `client`, and is replaced by `protocol`."""

    def __init__(self, protocol: asyncio.Protocol, client: Peer) -> None:
        self._protocol = protocol
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast("asyncio.Transport", transport)
        real.set_protocol(self._protocol)
        self._protocol.connection_made(cast("asyncio.Transport", ForwardedTransport(real, self._client)))


class ForwardedTransport:
    """A transport whose peer is the client that a balancer named, also for the API, which trusts loopback, where
    the balancer may be."""

    __slots__ = ("_client", "_transport", "abort", "close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, client: Peer) -> None:
        self._transport = transport
        self._client = client
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = transport.close
        self.abort = transport.abort

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._client if name == "peername" else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
