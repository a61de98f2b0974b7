"""What a route that goes by a key shows Prometheus."""

from random import Random

from prometheus_client import generate_latest

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.upstream import Handle
from slb.balance.view import RouteView
from slb.model import RouteSettings
from slb.observe.exposition import Shown
from slb.observe.ring import ring_families
from tests.unit.balance.upstreams import upstreams


def shown(ring: ConsistentHash) -> list[str]:
    return [
        line
        for line in generate_latest(Shown(ring_families([("/p", ring)]))).decode().splitlines()
        if not line.startswith("#")
    ]


def made() -> ConsistentHash:
    ring = ConsistentHash(Random(1), lambda: 10.0)
    ring.follow(upstreams("abc"), RouteSettings(ring_debounce=0.0))
    for _ in ring.steps():
        pass
    return ring


def test_distances_are_a_histogram() -> None:
    ring = made()
    ring.counts.kept = 5
    ring.counts.walked.update({1: 2, 10: 1})
    lines = shown(ring)
    assert 'slb_ring_distance_bucket{le="0.0",route="/p"} 5.0' in lines
    assert 'slb_ring_distance_bucket{le="9.0",route="/p"} 7.0' in lines
    assert 'slb_ring_distance_bucket{le="+Inf",route="/p"} 8.0' in lines
    assert 'slb_ring_distance_sum{route="/p"} 12.0' in lines
    assert 'slb_ring_distance_count{route="/p"} 8.0' in lines


def test_requests_that_went_round_are_counted_by_why() -> None:
    ring = made()
    view = RouteView(upstreams("xyz"))
    for key in (b"key", b"", b""):
        ring.pick(view, key)
    lines = shown(ring)
    assert 'slb_ring_keyless_total{route="/p"} 2.0' in lines
    assert 'slb_ring_unready_total{route="/p"} 1.0' in lines


def test_loads_fades_and_zones_are_gauges() -> None:
    every, settings = upstreams("abcd"), RouteSettings.model_validate({"ring_debounce": "0s", "fade_in": "30s"})
    ring = ConsistentHash(Random(1), lambda: 10.0)
    for there in (every[:3], every):
        ring.follow(there, settings)
        for _ in ring.steps():
            pass
    held = Handle(every[0])
    lines = shown(ring)
    assert 'slb_ring_fading{route="/p"} 1.0' in lines
    assert 'slb_zone_share{route="/p"} 0.0' in lines
    assert 'slb_zone_health{route="/p"} 1.0' in lines
    assert 'slb_upstream_effective_load{route="/p",upstream="a:80"} 1.0' in lines
    assert 'slb_upstream_occupancy{route="/p",upstream="a:80"} 0.0' in lines
    held.release()
