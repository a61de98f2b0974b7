"""Mirrors to be filled, and all there is to see of one."""

from collections.abc import Generator, Mapping
from random import Random
from typing import TypeVar

from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.live_upstreams import Attributes
from slb.routing.mirror import Mirror

A, B, C, D = (f"10.0.0.{number}:80" for number in range(1, 5))
Records = Mapping[str, RouteRecord]
T = TypeVar("T")


class Swaps:
    """Notes the members gone, swap by swap."""

    def __init__(self, mirror: Mirror) -> None:
        self.gone: list[list[str]] = []
        mirror.on_swap(lambda members: self.gone.append(sorted(members)))


def make_mirror(**settings: object) -> Mirror:
    return Mirror(Settings.model_validate(settings).route_settings, Random(1))


def record(*members: str, **settings: str) -> RouteRecord:
    return RouteRecord(frozenset(members), settings)


def replace(mirror: Mirror, records: Records, attributes: Attributes | None = None) -> None:
    for _ in mirror.replace(records, attributes or {}):
        pass


def shown(mirror: Mirror) -> dict[str, object]:
    """All there is to see of a mirror."""
    return {
        "routes": {
            path: (
                route.settings,
                type(route.policy),
                [each.member for each in route.members],
                [each.member for each in route.upstreams],
            )
            for path, route in mirror.table.routes.items()
        },
        "upstreams": {member: live.spec for member, live in mirror.upstreams.items()},
        "uses": {member: mirror.uses(member) for member in mirror.upstreams},
        "records": mirror.records,
        "attributes": mirror.attributes,
        "faults": mirror.faults,
    }


def upstreams(mirror: Mirror, path: str) -> list[str]:
    return [live.member for live in mirror.table.routes[path].upstreams]


def at_once(steps: Generator[None, None, T]) -> T:
    """What a generator that yields between slices returns."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
