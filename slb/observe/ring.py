"""The metrics of routes that go by a key: read off their policies at a scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from slb.balance.bounded_load import MOST_HOPS
from slb.balance.consistent_hash import ConsistentHash
from slb.observe.families import counters, gauges

Rings = Callable[[], Iterable[tuple[str, ConsistentHash]]]
"""Route path and policy, of each route that goes by a key."""

_COUNTERS: Mapping[str, tuple[str, Callable[[ConsistentHash], float]]] = {
    "slb_ring_keyless": ("Requests without a key, sent round-robin.", lambda it: it.counts.keyless),
    "slb_ring_unready": ("Requests before there was a ring, sent round-robin.", lambda it: it.counts.unready),
}
_GAUGES: Mapping[str, tuple[str, Callable[[ConsistentHash], float]]] = {
    "slb_ring_fading": ("Rings that are fading in.", lambda it: it.fading),
    "slb_zone_share": ("Share of requests that the zone's own ring decides.", lambda it: it.zone_share.share),
    "slb_zone_health": (
        "1 where latency leaves the zone its share, down to 0.",
        lambda it: it.zone_share.ramp.health,
    ),
}


def ring_families(rings: Iterable[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
    """Of the routes that go by a key now."""
    found = list(rings)
    yield _distances(found)
    yield from _of_each_route(found)
    yield from _loads(found)


def _distances(rings: list[tuple[str, ConsistentHash]]) -> Metric:
    family = HistogramMetricFamily(
        "slb_ring_distance", "Upstreams passed over for a request because they were busy.", labels=("route",)
    )
    for route, ring in rings:
        counts = dict(ring.counts.distances)
        upto = list(accumulate(counts.get(hops, 0) for hops in range(MOST_HOPS)))
        buckets = [(f"{hops}.0", float(count)) for hops, count in enumerate(upto)]
        buckets.append(("+Inf", sum(counts.values())))
        family.add_metric((route,), buckets, sum(hops * count for hops, count in counts.items()))
    return family


def _of_each_route(rings: list[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
    for name, (text, count) in _COUNTERS.items():
        yield counters(name, text, ("route",), (((route,), count(ring)) for route, ring in rings))
    for name, (text, figure) in _GAUGES.items():
        yield gauges(name, text, ("route",), (((route,), figure(ring)) for route, ring in rings))


def _loads(rings: list[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
    labels, loads = ("route", "upstream"), [(route, *load) for route, ring in rings for load in ring.loads()]
    busy = (((route, upstream.member), occupancy) for route, upstream, occupancy, _ in loads)
    yield gauges("slb_upstream_occupancy", "Seconds of work in a second.", labels, busy)
    effective = (((route, upstream.member), load) for route, upstream, _, load in loads)
    text = "What a bounded load compares with its threshold."
    yield gauges("slb_upstream_effective_load", text, labels, effective)
