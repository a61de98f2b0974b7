"""Which addresses are in the answers: decided from what Redis has of the instances, and from what checks found."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Literal, NamedTuple

from slb.control.instances import DRAINING, InstanceInfo
from slb.dns.wire import Address
from slb.setting_values import host_port

MOST_WEIGHT = 65_535

Mode = Literal["live", "unchecked", "last_known", "none"]
"""`live`: the answers have the instances that are ready and pass the check. None does: `unchecked`, those that beat
and do not drain; none of these either: `last_known`. `none`: no instance has been known since the start."""


class Place(NamedTuple):
    """Where an instance takes traffic, as clients reach it."""

    address: Address
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Member:
    """A place, and what its instances say of it. Workers share one: it is ready where any of them is, and has the
    weight of all. `serves`: `http`, `https`, or `tcp` where no request can be made by a check."""

    place: Place
    serves: str
    zone: str
    weight: int
    is_ready: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answers have now, and why."""

    members: Sequence[Member] = ()
    mode: Mode = "none"


def members(known: Iterable[InstanceInfo]) -> dict[Place, Member]:
    """The places of all instances that take traffic. What cannot be read is passed over: any program may write to
    Redis."""
    found: dict[Place, Member] = {}
    for info in known:
        for place in places(info.advertise):
            member = Member(
                place, info.serves, info.zone, _number(info.weight, 1, MOST_WEIGHT), info.state != DRAINING
            )
            found[place] = _joined(found[place], member) if place in found else member
    return found


def name_servers(known: Iterable[InstanceInfo]) -> list[Address]:
    """The addresses of all responders."""
    found = (place.address for info in known if info.state != DRAINING for place in places(info.name_server))
    return sorted(set(found), key=lambda address: (address.version, int(address)))


def places(written: str) -> Iterator[Place]:
    """`10.0.0.5:8080,[fd00::5]:8080`, without what nobody can connect to."""
    for each in written.split(",") if written else ():
        try:
            host, port = host_port(each)
            address = ip_address(host)
        except ValueError:
            continue
        if port and not address.is_unspecified and not address.is_multicast:
            yield Place(address, port)


def answered(known: Mapping[Place, Member], passes: Callable[[Place], bool], last: Answered) -> Answered:
    """`known`: of Redis; `passes`: whether the last check of a place passed; `last`: what was returned before. All
    instances out of the answers would end all traffic, so where none is live those stay that may be."""
    if live := [each for each in known.values() if each.is_ready and passes(each.place)]:
        return Answered(live, "live")
    if beating := [each for each in known.values() if each.is_ready]:
        return Answered(beating, "unchecked")
    kept = last.members or list(known.values())
    return Answered(kept, "last_known" if kept else "none")


def _joined(one: Member, other: Member) -> Member:
    weight = min(one.weight + other.weight, MOST_WEIGHT)
    return replace(one, weight=weight, is_ready=one.is_ready or other.is_ready)


def _number(text: str, low: int, high: int) -> int:
    return min(max(int(text), low), high) if text.isascii() and text.isdigit() and len(text) < 10 else low
