"""What tests of sources share."""

from random import Random

from slb.config import Settings
from slb.model import RouteRecord
from slb.routing.mirror import Mirror


def a_mirror() -> Mirror:
    return Mirror(Settings().route_settings, Random(1))


def a_record(*members: str) -> RouteRecord:
    return RouteRecord(frozenset(members), None)
