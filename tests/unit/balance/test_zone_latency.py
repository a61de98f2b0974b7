"""What shows that a zone is slower than all: certain differences, and no others."""

from random import Random

import pytest

from slb.balance.load_stats import LoadStats
from slb.balance.zone_latency import ZoneLatency

MARGIN = 1.35


class Zones:
    """Four upstreams in the zone and eight elsewhere. Time is the test's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rng = Random(1)
        self.local = [LoadStats(lambda: self.now) for _ in range(4)]
        self.others = [LoadStats(lambda: self.now) for _ in range(8)]
        self.latency = ZoneLatency()
        self.latency.watch(self.local, self.others)

    def serve(self, upstream: LoadStats, seconds: float, completed: bool = True) -> None:
        """A request that ends now."""
        now = self.now
        self.now = now - seconds
        token = upstream.begin()
        self.now = now
        upstream.end(token, completed)

    def drift(self) -> float | None:
        """The zone's latency in parts of that of all."""
        local, all_zones = self.latency.look(self.now)
        return None if local is None or not all_zones else local / all_zones

    def run(self, seconds: float, share: float, local: float, others: float, rate: int = 300) -> float | None:
        """Requests at an even pace, `share` of them local, and the drift at their end."""
        drift = None
        for _ in range(int(seconds * rate)):
            self.now += 1 / rate
            here = self.rng.random() < share
            self.serve(self.rng.choice(self.local if here else self.others), local if here else others)
            drift = self.drift()
        return drift


def test_of_what_has_not_served_nothing_is_known() -> None:
    zones = Zones()
    assert zones.latency.look(zones.now) == (None, None)
    zones.serve(zones.local[0], 0.005)
    assert zones.drift() is None
    zones.serve(zones.others[0], 0.005)
    assert zones.drift() == 1.0


@pytest.mark.parametrize("share", [0.01, 0.33, 0.99])
def test_the_same_latency_drifts_the_same_whatever_the_share(share: float) -> None:
    """At the top of the ramp the mean of all requests is the zone's own. All zones: (4 * 10 + 8 * 5) / 12 ms."""
    assert Zones().run(60.0, share, local=0.010, others=0.005) == pytest.approx(1.5, abs=0.12)


def test_what_slows_all_of_them_is_no_drift() -> None:
    zones = Zones()
    zones.run(30.0, 0.99, local=0.005, others=0.005)
    for _ in range(20):
        drift = zones.run(0.5, 0.99, local=0.050, others=0.050)
        assert drift is not None
        assert drift < MARGIN


def test_a_few_misses_among_hits_are_no_drift_where_the_others_had_none_by_chance() -> None:
    zones = Zones()
    for number in range(200):
        zones.serve(zones.local[0], 0.100 if number % 20 == 0 else 0.001)
    for _ in range(3):
        zones.serve(zones.others[0], 0.001)
    drift = zones.drift()
    assert drift is not None
    assert drift < MARGIN


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_hits_and_misses_alike_everywhere_hardly_ever_look_like_a_drift(share: float) -> None:
    zones, looks = Zones(), 20_000
    above = 0
    for _ in range(looks):
        zones.now += 0.01
        side = zones.local if zones.rng.random() < share else zones.others
        zones.serve(zones.rng.choice(side), 0.100 if zones.rng.random() < 0.05 else 0.001)
        above += (zones.drift() or 1.0) > MARGIN
    assert above <= looks / 500


def test_a_zone_that_is_fast_again_drifts_no_more() -> None:
    zones = Zones()
    assert (zones.run(20.0, 0.99, local=0.050, others=0.005) or 0.0) > MARGIN
    assert zones.run(60.0, 0.01, local=0.005, others=0.005) == pytest.approx(1.0, abs=0.05)


def test_upstreams_that_come_and_go_bring_nothing_from_before() -> None:
    zones = Zones()
    zones.run(20.0, 0.5, local=0.005, others=0.005)
    slow = LoadStats(lambda: zones.now)
    for _ in range(1000):
        zones.serve(slow, 1.0)
    zones.latency.watch([*zones.local[1:], slow], zones.others)
    assert zones.drift() == pytest.approx(1.0, abs=0.01)
    zones.latency.watch(zones.local, zones.others)
    assert zones.drift() == pytest.approx(1.0, abs=0.01)


def test_a_zone_without_requests_is_forgotten() -> None:
    zones = Zones()
    zones.run(20.0, 0.5, local=0.050, others=0.005)
    zones.now += 60.0
    assert zones.latency.look(zones.now) == (None, None)
