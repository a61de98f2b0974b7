"""An upstream fades in while its zone ramps, and requests take time: the seam of the two, under load."""

import heapq
from collections import Counter
from random import Random

import pytest

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.balance.zone import FLOOR
from slb.model import RouteSettings
from tests.unit.balance.rings import KEYS, fleet

FAST, SLOW = 0.005, 0.050
RATE = 200


class Traffic:
    """Requests at random moments to a route of three zones, this process in the first; `latency` is what the zone's
    own upstreams take, `elsewhere` what the others do."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rng = Random(3)
        self.latency = self.elsewhere = FAST
        self.policy = ConsistentHash(Random(5), lambda: self.now, "a")
        self.settings = RouteSettings.model_validate(
            {
                "policy": "consistent_hash",
                "ring_debounce": "0s",
                "fade_in": "10s",
                "zone_affinity": True,
                "zone_delay": "5s",
                "zone_fade_in": "20s",
            }
        )
        self.upstreams: tuple[LiveUpstream, ...] = ()
        self.running: list[tuple[float, int, Handle]] = []
        self.made = 0
        self.has([each for net, zone in enumerate("abc") for each in fleet(4, net, zone)])

    def has(self, upstreams: list[LiveUpstream]) -> None:
        """These are its upstreams from now on."""
        self.upstreams = tuple(sorted(upstreams, key=lambda each: each.member))
        self.view = RouteView(self.upstreams)
        self.policy.follow(self.upstreams, self.settings)
        self.step()

    def joins(self, *new: LiveUpstream) -> None:
        self.has([*self.upstreams, *new])

    def leaves(self, *gone: LiveUpstream) -> None:
        self.has([each for each in self.upstreams if each not in gone])

    def local(self) -> list[LiveUpstream]:
        return [each for each in self.upstreams if each.spec.zone == "a"]

    def step(self) -> None:
        while self.policy.wake <= self.now:
            for _ in self.policy.steps():
                pass

    def run(self, seconds: float) -> Counter[LiveUpstream]:
        """Who got how many requests."""
        end, got = self.now + seconds, Counter[LiveUpstream]()
        while (moment := self.now + self.rng.expovariate(RATE)) < end:
            self._release_until(moment)
            self.now = moment
            self.step()
            upstream = self.policy.pick(self.view, self.rng.choice(KEYS))
            took = self.latency if upstream.spec.zone == "a" else self.elsewhere
            self.made += 1
            heapq.heappush(self.running, (moment + took, self.made, Handle(upstream)))
            got[upstream] += 1
        self._release_until(end)
        self.now = end
        return got

    def _release_until(self, moment: float) -> None:
        while self.running and self.running[0][0] <= moment:
            self.now, _, handle = heapq.heappop(self.running)
            handle.release()

    def share_of_zone(self, seconds: float) -> float:
        got = self.run(seconds)
        return sum(count for each, count in got.items() if each.spec.zone == "a") / got.total()


def test_an_upstream_that_joins_the_zone_during_the_ramp_warms_up_and_lands_in_its_place() -> None:
    traffic, new = Traffic(), fleet(1, net=9, zone="a")[0]
    traffic.run(15.0)
    traffic.joins(new)
    shares = [traffic.run(2.0)[new] / (2.0 * RATE) for _ in range(5)]
    assert max(shares[:2]) < 0.01  # a request or two, by chance
    assert shares[1:] == sorted(shares[1:])
    traffic.run(20.0)
    # A fifth of what is local; bounded load evens out what the ring's positions do not.
    assert traffic.run(10.0)[new] / (10.0 * RATE) == pytest.approx(1 / 5, rel=0.35)


def test_an_upstream_that_joins_another_zone_takes_nothing_from_the_ramp() -> None:
    traffic = Traffic()
    traffic.run(15.0)
    before = traffic.policy.zone_share.share
    traffic.joins(*fleet(6, net=9, zone="b"))
    traffic.run(0.1)
    assert before <= traffic.policy.zone_share.share <= before + 0.02
    traffic.run(20.0)
    assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_neither_ramp_nor_fade_in_sends_requests_past_upstreams_with_no_more_than_their_part() -> None:
    """A naive mean of all would pass over the zone's upstreams, and the established ones, all the time."""
    traffic = Traffic()
    traffic.latency = traffic.elsewhere = SLOW  # ten requests in flight
    traffic.run(15.0)
    assert _passed_over(traffic, 10.0) < 0.4
    traffic.joins(*fleet(4, net=9, zone="a"))
    assert _passed_over(traffic, 6.0) < 0.3


def test_a_scale_up_when_the_ramp_has_ended_does_not_begin_it_again() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    assert traffic.policy.zone_share.share == 1.0 - FLOOR
    traffic.joins(*fleet(4, net=9, zone="a"))
    for _ in range(6):
        assert traffic.share_of_zone(1.0) > 0.9
        assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_a_rolling_deploy_of_the_zone_begins_nothing_again() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    for number, old in enumerate(traffic.local()):
        traffic.joins(*fleet(1, net=20 + number, zone="a"))
        traffic.run(11.0)
        traffic.leaves(old)
        assert traffic.share_of_zone(1.0) > 0.9
    assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_at_the_top_of_the_ramp_a_slow_zone_is_braked_and_comes_back_by_itself() -> None:
    """There nearly all requests are local: their own mean is no measure for them."""
    traffic = Traffic()
    traffic.run(30.0)
    traffic.latency = SLOW
    traffic.run(10.0)
    assert traffic.policy.zone_share.ramp.health == 0.0
    assert traffic.policy.zone_share.share == FLOOR
    traffic.latency = FAST
    traffic.run(60.0)
    assert traffic.policy.zone_share.ramp.health == 1.0
    assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_a_brake_during_the_ramp_does_not_begin_it_again_and_a_scale_up_does_not_release_it() -> None:
    traffic = Traffic()
    traffic.run(18.0)
    traffic.latency = SLOW
    traffic.run(10.0)
    assert traffic.policy.zone_share.share == FLOOR
    traffic.joins(*fleet(2, net=9, zone="a"))
    traffic.run(1.0)
    assert traffic.policy.zone_share.share == FLOOR
    traffic.latency = FAST
    traffic.run(60.0)
    assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_zones_that_were_switched_off_ramp_from_the_start_when_they_are_switched_on_again() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    on = traffic.settings
    traffic.settings = on.model_copy(update={"zone_affinity": False})
    traffic.has(list(traffic.upstreams))
    assert traffic.share_of_zone(2.0) < 0.5
    traffic.settings = on
    traffic.has(list(traffic.upstreams))
    traffic.run(1.0)
    assert traffic.policy.zone_share.share == 0.0


def test_a_request_that_comes_right_behind_the_switching_off_begins_no_ramp() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    on = traffic.settings
    off = on.model_copy(update={"zone_affinity": False})
    traffic.policy.follow(traffic.upstreams, off)
    traffic.policy.pick(traffic.view, b"x")
    traffic.step()
    traffic.now += 3600.0
    traffic.settings = on
    traffic.has(list(traffic.upstreams))
    traffic.run(1.0)
    assert traffic.policy.zone_share.share == 0.0


def test_a_brief_dip_leaves_the_share_as_it_is() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    traffic.latency = 2 * FAST
    traffic.run(0.5)
    traffic.latency = FAST
    for _ in range(10):
        traffic.run(0.5)
        assert traffic.policy.zone_share.share == 1.0 - FLOOR


def test_a_zone_that_loses_its_upstreams_gives_all_zones_the_requests_and_takes_them_back() -> None:
    traffic = Traffic()
    traffic.run(30.0)
    gone = traffic.local()[:2]
    traffic.leaves(*gone)
    assert traffic.share_of_zone(2.0) < 0.35
    traffic.joins(*gone)
    traffic.run(11.0)
    assert traffic.share_of_zone(1.0) > 0.9


def _passed_over(traffic: Traffic, seconds: float) -> float:
    """Upstreams passed over in each request."""
    before = dict(traffic.policy.counts.distances)
    traffic.run(seconds)
    new = {hops: count - before.get(hops, 0) for hops, count in traffic.policy.counts.distances.items()}
    return sum(hops * count for hops, count in new.items()) / sum(new.values())
