"""The other end of a client connection, and what upstreams are sent about it."""

import asyncio

from slb.addresses import in_networks
from slb.proxy.headers import Forwarding, RequestHead
from slb.setting_values import Network

_PROTO = (b"http", b"https")
_MOST_HOPS = 100


class Peer:
    """`address`: as the log has it. `is_trusted`: its forwarding headers are kept. `line`: the forwarding headers
    where it sent none."""

    __slots__ = ("_for", "_proto", "_trusted", "address", "is_trusted", "line")

    def __init__(self, transport: asyncio.Transport, trusted_proxies: tuple[Network, ...]) -> None:
        peername = transport.get_extra_info("peername")
        is_address = isinstance(peername, tuple)
        self.address = str(peername[0]) if is_address else "unix"
        self.is_trusted = is_address and in_networks(self.address, trusted_proxies)
        self._trusted = trusted_proxies
        self._for = self.address.encode()
        self._proto = _PROTO[transport.get_extra_info("sslcontext") is not None]
        self.line = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % (self._for, self._proto)

    def forwarded(self, received: Forwarding) -> bytes:
        """X-Forwarded-For and -Proto as this hop sends them, appended to what a trusted peer sent."""
        hops = b"%b, %b" % (received.hops, self._for) if received.hops else self._for
        lines = b"X-Forwarded-For: %b\r\n" % hops
        if not received.has_proto:
            lines += b"X-Forwarded-Proto: %b\r\n" % self._proto
        if received.has_forwarded:
            lines += b"Forwarded: for=%b;proto=%b\r\n" % (self._node(), self._proto)
        return lines

    @property
    def scheme(self) -> str:
        """Of its requests, as it connected."""
        return self._proto.decode()

    def client(self, head: RequestHead) -> str:
        """The address of the client that made the request: the peer, or the last hop before the trusted proxies. At
        most 100 hops are looked at: a client may write thousands."""
        address = self.address
        if head.forwarding is not None and head.forwarding.hops:
            for hop in reversed(head.forwarding.hops.rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:]):
                address = hop.strip(b" \t").decode("latin-1")
                if not in_networks(address, self._trusted):
                    break
        return address

    def _node(self) -> bytes:
        """RFC 7239, 6: an IPv6 address is quoted and in brackets."""
        return b'"[%b]"' % self._for if b":" in self._for else self._for
