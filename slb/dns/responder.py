"""One packet in, at most one packet out. Pure: what is asked is looked up among names that were made before."""

from collections.abc import Mapping, Sequence

from slb.addresses import in_networks
from slb.dns import wire
from slb.dns.wire import Query
from slb.dns.zone import Names
from slb.observe.dns import DnsCounts
from slb.setting_values import Network

_AMPLIFICATION = 4
"""Times its question an answer over UDP may be as long, to an address that is not in `dns_networks`: the sender of
a packet can be forged, and what is sent there is then an attack."""

_MOST_PEERS = 10_000
"""Addresses of which is kept how they are answered."""


class Responder:
    """`names` by the zone that clients are near to, "" for all others; `views`: which clients are near to which."""

    def __init__(self, counts: DnsCounts) -> None:
        self._counts = counts
        self._names: Mapping[str, Names] = {}
        self._networks: Sequence[Network] = ()
        self._views: Sequence[tuple[Network, str]] = ()
        self._peers: dict[str, tuple[Names | None, bool]] = {}

    def show(
        self, names: Mapping[str, Names], networks: Sequence[Network], views: Sequence[tuple[Network, str]]
    ) -> None:
        """Answer with these from now on."""
        self._names, self._networks, self._views = names, networks, views
        self._peers = {}

    def over_udp(self, packet: bytes, peer: str) -> bytes | None:
        """The answer; None where there is none."""
        query = wire.read(packet)
        if query is None:
            self._counts.dropped["response" if packet[2:3] > b"\x7f" else "malformed"] += 1
            return None
        names, is_known = self._peers.get(peer) or self._judged(peer)
        usual = min(query.size, wire.EDNS_SIZE) or wire.PLAIN_SIZE
        room = usual if is_known else min(usual, _AMPLIFICATION * len(packet))
        return self._answer(packet, query, names, room, usual, "udp")

    def over_tcp(self, packet: bytes, peer: str) -> bytes | None:
        """The answer, as long as it need be: a connection proves the peer's address. None: hang up."""
        query = wire.read(packet)
        if query is None:
            self._counts.dropped["malformed"] += 1
            return None
        names, _ = self._peers.get(peer) or self._judged(peer)
        return self._answer(packet, query, names, wire.STREAM_SIZE, wire.STREAM_SIZE, "tcp")

    def _answer(
        self, packet: bytes, query: Query, names: Names | None, room: int, usual: int, transport: str
    ) -> bytes:
        found = self._refusal(packet, query, names) if query.rcode or names is None else None
        if found is None:
            assert names is not None
            found = self._found(packet, query, names, room, usual, is_plain=transport == "udp" and not query.size)
        if len(found) > room:  # a negative answer to a short question
            found = wire.answer(packet, query, found[3] & 15, truncated=True)
        self._counts.answers[transport, wire.RCODES.get(found[3] & 15, "")] += 1
        if found[2] & 0x02:
            self._counts.truncated += 1
        return found

    def _refusal(self, packet: bytes, query: Query, names: Names | None) -> bytes:
        rcode = query.rcode or wire.SERVFAIL
        return wire.answer(packet, query, rcode, authoritative=False)

    def _found(self, packet: bytes, query: Query, names: Names, room: int, usual: int, is_plain: bool) -> bytes:
        name, kind = query.name, query.kind
        node = names.nodes.get(name)
        zone = node.zone if node else names.zone_of(name)
        if zone is None or kind in (wire.AXFR, wire.IXFR):
            return wire.answer(packet, query, wire.REFUSED, authoritative=False)
        records = node.kinds.get(kind) if node else None
        if records:
            used = query.end + (len(wire.OPT_RECORD) if query.size else 0)
            count, written, truncated = records.fitted(room - used, usual - used, is_plain)
            return wire.answer(packet, query, wire.NOERROR, written, count, truncated=truncated)
        if node and node.is_unknown:
            return wire.answer(packet, query, wire.SERVFAIL, authoritative=False)
        # The zone's name is the end of the question's, and the question ends with type and class.
        soa = wire.pointer(query.end - 4 - len(zone.name)) + zone.soa
        return wire.answer(packet, query, wire.NOERROR if node else wire.NXDOMAIN, authority=soa)

    def _judged(self, peer: str) -> tuple[Names | None, bool]:
        if len(self._peers) >= _MOST_PEERS:
            self._peers.clear()
        near = next((zone for network, zone in self._views if in_networks(peer, [network])), "")
        judged = self._peers[peer] = (self._names.get(near), in_networks(peer, self._networks))
        return judged
