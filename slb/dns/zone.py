"""The names of a zone and what stands behind them, made anew whenever the instances change: an answer is looked up
and put together, not computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from slb.dns import wire
from slb.dns.fleet import Member
from slb.dns.rotation import Rotation
from slb.dns.wire import Address

PLAIN_ADDRESSES = 13
"""Addresses in an answer to a query without EDNS: any name leaves room for so many A records in 512 bytes."""

_REFRESH, _RETRY, _EXPIRE = 60, 10, 3600
"""Seconds, for secondary servers, of which there are none: zones are not transferred."""
_NO_ANY = wire.record(wire.HINFO, 3600, wire.label("RFC8482") + b"\0")


class Fitted(NamedTuple):
    """Records that fit: their number, themselves, and whether some are left out that the client has to ask for
    again over TCP."""

    number: int
    records: bytes
    truncated: bool


class Records:
    """What one name has of one type. Members of the client's own zone (`near`) come before the others. `whole`: all
    of them belong in an answer, not any fair part."""

    def __init__(self, near: Rotation, far: Rotation, plain_most: int, whole: bool = False) -> None:
        self._near = near
        self._far = far
        self._size = max(near.size, far.size)
        self._plain_most = plain_most
        self._whole = whole

    def __len__(self) -> int:
        return len(self._near) + len(self._far)

    def fitted(self, room: int, usual: int, is_plain: bool) -> Fitted:
        """At most `room` bytes. `usual`: the room that a client has which is not held to a multiple of its
        question; an answer that has less than that one would have is truncated."""
        most = self._plain_most if is_plain else len(self)
        count = min(most, max(0, room) // self._size)
        near = self._near.count(count)
        far = self._far.count(count - near) if near == len(self._near) else 0
        wanted = len(self) if self._whole else min(most, usual // self._size, len(self))
        return Fitted(near + far, self._near.take(near) + self._far.take(far), count < wanted)


@dataclass(frozen=True, slots=True)
class Node:
    """A name that exists. Types that it has not are answered with no record and the SOA; `is_unknown`: with a
    failure, since what belongs there is not known yet, and nobody is to keep that there is nothing."""

    zone: "Zone"
    kinds: Mapping[int, Records]
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Zone:
    """`name` on the wire; `soa`: its SOA record but for the owner."""

    name: bytes
    soa: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into a zone. `ttl` in seconds; `serial` counts changes."""

    name: str
    members: Sequence[Member]
    all_members: Sequence[Member]
    servers: Sequence[Address]
    ttl: int
    serial: int


class Names:
    """All names, as clients of one view have them. `zones` by their name on the wire."""

    def __init__(self, contents: Iterable[Contents], near_zone: str, rng: Random) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.zones: dict[bytes, Zone] = {}
        self._near_zone = near_zone
        self._rng = rng
        for each in contents:
            self._add(each)
        self._lengths = {len(name) for name in self.zones}

    def zone_of(self, name: bytes) -> Zone | None:
        """The zone that a name is in: the longest, where one is within another."""
        at = 0
        while at < len(name):
            if len(name) - at in self._lengths and (zone := self.zones.get(name[at:])):
                return zone
            at += name[at] + 1
        return None

    def _add(self, given: Contents) -> None:
        name, ttl = wire.wire_name(given.name), given.ttl
        soa = wire.soa_data(name, given.serial, (_REFRESH, _RETRY, _EXPIRE, ttl))
        zone = self.zones[name] = Zone(name, wire.record(wire.SOA, ttl, soa, b""))
        fixed = {
            wire.SOA: self._plain([wire.record(wire.SOA, ttl, soa)]),
            wire.NS: self._plain([wire.record(wire.NS, ttl, wire.label("ns") + name)]),
            wire.ANY: self._plain([_NO_ANY]),
        }
        is_unknown = not given.members
        self.nodes[name] = Node(zone, {**self._addresses(given.members, ttl), **fixed}, is_unknown)
        self.nodes[wire.label("ns") + name] = Node(zone, self._of_addresses(given.servers, ttl))
        services = {"http": [each for each in given.members if each.serves != "https"]}
        services["https"] = [each for each in given.members if each.serves == "https"]
        self.nodes[wire.label("_tcp") + name] = Node(zone, {})
        for service, members in services.items():
            node = Node(zone, self._services(members, name, ttl), is_unknown)
            self.nodes[wire.label(f"_{service}") + wire.label("_tcp") + name] = node
        for address in {each.place.address for each in given.all_members}:
            self.nodes[host_label(address) + name] = Node(zone, self._of_addresses([address], ttl))

    def _addresses(self, members: Sequence[Member], ttl: int) -> dict[int, Records]:
        zones = {each.place.address: each.zone for each in members}
        near = [address for address, zone in zones.items() if self._is_near(zone)]
        far = [address for address, zone in zones.items() if not self._is_near(zone)]
        return self._of_addresses(far, ttl, near)

    def _of_addresses(self, far: Iterable[Address], ttl: int, near: Iterable[Address] = ()) -> dict[int, Records]:
        found: dict[int, Records] = {}
        for kind, version in ((wire.A, 4), (wire.AAAA, 6)):
            parts = [
                [wire.address_record(address, ttl) for address in part if address.version == version]
                for part in (near, far)
            ]
            if any(parts):
                first, others = (Rotation(part, self._rng) for part in parts)
                found[kind] = Records(first, others, PLAIN_ADDRESSES)
        return found

    def _services(self, members: Sequence[Member], zone: bytes, ttl: int) -> dict[int, Records]:
        parts = [
            [_srv(each, priority, zone, ttl) for each in members if self._is_near(each.zone) is is_near]
            for priority, is_near in ((0, True), (int(bool(self._near_zone)), False))
        ]
        near, far = (Rotation(part, self._rng) for part in parts)
        return {wire.SRV: Records(near, far, len(members), whole=True)} if members else {}

    def _plain(self, records: Sequence[bytes]) -> Records:
        return Records(Rotation((), self._rng), Rotation(records, self._rng), len(records), whole=True)

    def _is_near(self, zone: str) -> bool:
        return bool(self._near_zone) and zone == self._near_zone


def host_label(address: Address) -> bytes:
    """The label of one address: `ip-10-0-0-5`, `ip6-` and 32 hexadecimal digits."""
    return wire.label(
        f"ip-{str(address).replace('.', '-')}" if address.version == 4 else f"ip6-{address.packed.hex()}"
    )


def _srv(member: Member, priority: int, zone: bytes, ttl: int) -> bytes:
    target = host_label(member.place.address) + zone
    return wire.srv_record(priority, member.weight, member.place.port, target, ttl)
