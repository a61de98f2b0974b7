"""The metrics of routes that go by a key: read off their policies when somebody asks."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.balance.bounded_load import MOST_HOPS
from slb.balance.consistent_hash import ConsistentHash

Rings = Callable[[], Iterable[tuple[str, ConsistentHash]]]
"""Route path and policy, of each route that goes by a key."""


class RingCollector(Collector):
    """`rings`: those there are now."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings

    def collect(self) -> Iterator[Metric]:
        rings = list(self._rings())
        yield self._distances(rings)
        yield from self._counters(rings)
        yield from self._gauges(rings)
        yield from self._loads(rings)

    def _distances(self, rings: list[tuple[str, ConsistentHash]]) -> Metric:
        family = HistogramMetricFamily(
            "slb_ring_distance", "Upstreams passed over for a request because they were busy.", labels=("route",)
        )
        for route, ring in rings:
            counts = dict(ring.distances)
            upto = list(accumulate(counts.get(hops, 0) for hops in range(MOST_HOPS)))
            buckets = [(f"{hops}.0", float(count)) for hops, count in enumerate(upto)]
            buckets.append(("+Inf", sum(counts.values())))
            family.add_metric((route,), buckets, sum(hops * count for hops, count in counts.items()))
        return family

    def _counters(self, rings: list[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
        keyless = CounterMetricFamily(
            "slb_ring_keyless", "Requests without a key, sent round-robin.", labels=("route",)
        )
        unready = CounterMetricFamily(
            "slb_ring_unready", "Requests before there was a ring, sent round-robin.", labels=("route",)
        )
        for route, ring in rings:
            keyless.add_metric((route,), ring.keyless)
            unready.add_metric((route,), ring.unready)
        yield keyless
        yield unready

    def _gauges(self, rings: list[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
        fading = GaugeMetricFamily("slb_ring_fading", "Rings that are fading in.", labels=("route",))
        share = GaugeMetricFamily(
            "slb_zone_share", "Share of requests that the zone's own ring decides.", labels=("route",)
        )
        health = GaugeMetricFamily(
            "slb_zone_health", "1 where latency takes nothing of that share away, down to 0.", labels=("route",)
        )
        for route, ring in rings:
            fading.add_metric((route,), ring.fading)
            share.add_metric((route,), ring.zone_share)
            health.add_metric((route,), ring.ramp.health)
        yield fading
        yield share
        yield health

    def _loads(self, rings: list[tuple[str, ConsistentHash]]) -> Iterator[Metric]:
        labels = ("route", "upstream")
        occupancy = GaugeMetricFamily("slb_upstream_occupancy", "Seconds of work in a second.", labels=labels)
        load = GaugeMetricFamily(
            "slb_upstream_effective_load", "What a bounded load compares with its threshold.", labels=labels
        )
        for route, ring in rings:
            for upstream, busy, effective in ring.loads():
                occupancy.add_metric((route, upstream.member), busy)
                load.add_metric((route, upstream.member), effective)
        yield occupancy
        yield load
