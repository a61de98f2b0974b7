"""A connection that a balancer has forwarded: all that asks for its peer is given the client."""

import asyncio
from typing import Any
from unittest.mock import Mock

from slb.proxy.forwarded_transport import Forwarded, ForwardedTransport

CLIENT = ("192.0.2.7", 4711)


class Served(asyncio.Protocol):
    """Keeps what it is connected by."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport


def test_the_protocol_is_connected_by_a_transport_whose_peer_is_the_client() -> None:
    real, served = Mock(asyncio.Transport), Served()
    real.get_extra_info.side_effect = {"peername": ("10.0.0.1", 80), "sockname": ("10.0.0.2", 443)}.get
    Forwarded(served, CLIENT).connection_made(real)
    real.set_protocol.assert_called_once_with(served)
    assert isinstance(served.transport, ForwardedTransport)
    assert served.transport.get_extra_info("peername") == CLIENT
    assert served.transport.get_extra_info("sockname") == ("10.0.0.2", 443)


def test_all_else_is_the_transports_own() -> None:
    real = Mock(asyncio.Transport)
    transport = ForwardedTransport(real, CLIENT)
    transport.write(b"data")
    transport.pause_reading()
    transport.abort()
    assert [call[0] for call in real.mock_calls] == ["write", "pause_reading", "abort"]
