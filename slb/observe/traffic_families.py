"""How what was counted of requests is shown to Prometheus.

Totals, which alerts are for: each route's are there as long as the route is, from 0 on. Series of upstreams tell
where to look; each ends with its upstream, and what it counted since the last scrape is not seen in it.
"""

from collections.abc import Iterator

from prometheus_client.core import SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slb.observe.families import counters, histograms
from slb.observe.traffic import CODES, Traffic


class TrafficCollector(Collector):
    """Of the requests of one process."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._times()
        yield from self._bytes()

    def _requests(self) -> Iterator[Metric]:
        yield counters(
            "slb_route_requests",
            "Requests answered or abandoned (4xx): all of a route's, for alerts.",
            ("route", "code"),
            (
                ((route, code), count)
                for route, by_code in self._traffic.totals()
                for code, count in zip(CODES, by_code, strict=True)
            ),
        )
        yield counters(
            "slb_requests",
            "The same, by who served them and how they ended (code 499: abandoned).",
            ("route", "upstream", "code", "reason"),
            (
                ((route, upstream, str(status), reason), count)
                for (route, upstream, status, reason), count in self._traffic.requests().items()
            ),
        )

    def _times(self) -> Iterator[Metric]:
        routes = list(self._traffic.routes.values())
        for name, text, by_route in (
            (
                "slb_request_duration_seconds",
                "From the request's head to its end.",
                {each.path: each.durations for each in routes},
            ),
            (
                "slb_time_to_first_byte_seconds",
                "From the request's head to the reply's.",
                {each.path: each.first_bytes for each in routes},
            ),
        ):
            yield histograms(name, text, {path: times for path, times in by_route.items() if any(times.counts)})
        summary = SummaryMetricFamily(
            "slb_upstream_request_duration_seconds",
            "From when a request was sent to the upstream to its end.",
            labels=("route", "upstream"),
        )
        for route in routes:
            for upstream, counts in list(route.upstreams.items()):
                if upstream and (sent := counts.sent):
                    summary.add_metric((route.path, upstream), sent, counts.seconds)
        yield summary

    def _bytes(self) -> Iterator[Metric]:
        routes = list(self._traffic.routes.values())
        for name, text, by_route in (
            ("slb_request_bytes", "Of requests' bodies.", [(each.path, each.bytes_in) for each in routes]),
            ("slb_response_bytes", "Of replies' bodies.", [(each.path, each.bytes_out) for each in routes]),
        ):
            yield counters(name, text, ("route",), (((path,), count) for path, count in by_route))
