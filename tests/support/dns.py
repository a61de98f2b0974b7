"""Fleets for the DNS responder, and what a client makes of its answers; dnspython is the client."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from random import Random

import dns.flags
import dns.message
import dns.rdatatype

from slb.dns.fleet import Member, Place
from slb.dns.responder import Responder
from slb.dns.wire import Address
from slb.dns.zone import Contents, Names
from slb.observe.dns import DnsCounts

ZONE = "slb.internal"
KNOWN, STRANGER = "10.0.0.99", "192.0.2.99"


def member(host: str, port: int = 80, zone: str = "", weight: int = 1, serves: str = "http") -> Member:
    return Member(Place(ip_address(host), port), serves, zone, weight, is_ready=True)


def fleet(count: int, zone: str = "") -> list[Member]:
    """`10.0.1.1` and on."""
    return [member(f"10.0.{1 + index // 250}.{1 + index % 250}", zone=zone) for index in range(count)]


class Asked:
    """A responder, and a client of it. `members`: those in the answers."""

    def __init__(
        self,
        members: Sequence[Member] = (),
        zones: Sequence[str] = (ZONE,),
        views: Sequence[tuple[str, str]] = (),
        ttl: int = 5,
        seed: int = 1,
        servers: Sequence[Address] = (ip_address("10.9.9.9"),),
    ) -> None:
        self.counts = DnsCounts()
        self.responder = Responder(self.counts)
        contents = [Contents(zone, members, members, servers, ttl, 7) for zone in zones]
        near = ["", *(zone for _, zone in views)]
        self.responder.show(
            {zone: Names(contents, zone, Random(seed)) for zone in near},
            [ip_network("10.0.0.0/8"), ip_network("127.0.0.0/8")],
            [(ip_network(network), zone) for network, zone in views],
        )

    def raw(self, packet: bytes, peer: str = KNOWN) -> bytes | None:
        return self.responder.over_udp(packet, peer)

    def ask(
        self, name: str = ZONE, kind: str = "A", peer: str = KNOWN, edns: int = 0, tcp: bool = False
    ) -> dns.message.Message:
        """`edns`: the size that is stated; 0 for none."""
        query = dns.message.make_query(name, kind, use_edns=0 if edns else False, payload=edns)
        packet = query.to_wire()
        answer = (self.responder.over_tcp if tcp else self.responder.over_udp)(packet, peer)
        assert answer is not None
        reply = dns.message.from_wire(answer)
        assert query.is_response(reply)
        return reply

    def addresses(
        self, peer: str = KNOWN, edns: int = 0, kind: str = "A", name: str = ZONE, tcp: bool = False
    ) -> list[str]:
        return addresses(self.ask(name, kind, peer, edns, tcp))


def addresses(reply: dns.message.Message) -> list[str]:
    """Those of its A and AAAA records, in their order."""
    kinds = (dns.rdatatype.A, dns.rdatatype.AAAA)
    return [each.address for section in reply.answer if section.rdtype in kinds for each in section]


def is_truncated(reply: dns.message.Message) -> bool:
    return bool(reply.flags & dns.flags.TC)
