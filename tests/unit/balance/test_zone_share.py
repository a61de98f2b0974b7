"""What stays in the zone, as its upstreams come, go and freeze."""

from slb.balance.load_stats import LoadStats
from slb.balance.upstream import Handle
from slb.balance.zone import FLOOR
from slb.balance.zone_share import ZoneShare
from slb.model import RouteSettings
from tests.unit.balance.rings import fleet

ZONE = {"zone_affinity": True, "zone_delay": "10s", "zone_fade_in": "100s"}


class Route:
    """Three upstreams in the zone and four elsewhere. Time is the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.local, self.far = fleet(3, zone="a"), fleet(4, net=1, zone="b")
        for each in (*self.local, *self.far):
            each.load_stats = LoadStats(lambda: self.now)
        self.zone = ZoneShare(RouteSettings.model_validate(ZONE))

    def look(self, at: float, out: int = 0) -> float:
        """The share, `out` of the zone's upstreams being unable to take requests."""
        self.now = at
        eligible = frozenset((*self.local[out:], *self.far))
        return self.zone.look(frozenset(self.local), eligible, 0.0, at)


def test_the_share_grows_from_the_first_look_on() -> None:
    route = Route()
    assert route.look(0.0) == route.look(9.9) == 0.0
    half = route.look(60.0)
    assert 0.1 < half < 0.3
    assert route.look(110.0) == route.zone.share == 1.0 - FLOOR


def test_a_zone_with_too_few_that_take_requests_has_no_share() -> None:
    route = Route()
    route.look(0.0)
    assert route.look(200.0, out=1) == 0.0
    assert route.look(201.0) == 1.0 - FLOOR


def test_a_zone_of_which_all_have_frozen_has_no_share() -> None:
    route = Route()
    route.look(0.0)
    route.look(200.0)
    held = [Handle(each) for each in route.local]
    assert route.look(201.0) == 0.0
    held[0].release()
    assert route.look(202.0) > 0.9


def test_the_ramp_begins_anew_only_once_all_zones_were_used_alike() -> None:
    route = Route()
    route.look(0.0)
    route.zone.follow(RouteSettings.model_validate({**ZONE, "zone_ceiling": 0.5}))
    assert route.look(200.0) == 0.5
    route.zone.follow(RouteSettings())
    route.zone.follow(RouteSettings.model_validate(ZONE))
    assert route.look(201.0) == 0.0
