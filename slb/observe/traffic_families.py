"""How what was counted of requests is shown to Prometheus.

Totals, which alerts are for: each route's are there as long as the route is, from 0 on. Series of upstreams tell
where to look; each ends with its upstream, and what it counted since the last scrape is not seen in it.
"""

from collections.abc import Iterator

from prometheus_client.core import SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from slb.observe.families import batches, counters, histograms
from slb.observe.traffic import CODES, Traffic

_HISTOGRAMS = 10  # in one part of their family: each has as many samples as there are bounds


def traffic_families(traffic: Traffic) -> Iterator[Metric]:
    """Of the requests of one process. Families come in parts, for `text_of_process`: there can be many thousand
    series, and what is not written yet has not been looked up either."""
    yield from _requests(traffic)
    yield from _times(traffic)
    yield from _bytes(traffic)


def _requests(traffic: Traffic) -> Iterator[Metric]:
    totals = (
        ((route, code), count)
        for route, by_code in traffic.totals()
        for code, count in zip(CODES, by_code, strict=True)
    )
    text = "Requests answered or abandoned (4xx): all of a route's, for alerts."
    for some in batches(totals):
        yield counters("slb_route_requests", text, ("route", "code"), some)
    requests = (
        ((route, upstream, str(status), reason), count)
        for (route, upstream, status, reason), count in traffic.requests()
    )
    text = "The same, by who served them and how they ended (code 499: abandoned)."
    for part in batches(requests):
        yield counters("slb_requests", text, ("route", "upstream", "code", "reason"), part)


def _times(traffic: Traffic) -> Iterator[Metric]:
    routes = list(traffic.routes.values())
    durations = ((each.path, each.durations) for each in routes)
    first_bytes = ((each.path, each.first_bytes) for each in routes)
    for name, text, rows in (
        ("slb_request_duration_seconds", "From the request's head to its end.", durations),
        ("slb_time_to_first_byte_seconds", "From the request's head to the reply's.", first_bytes),
    ):
        for part in batches((row for row in rows if any(row[1].counts)), _HISTOGRAMS):
            yield histograms(name, text, dict(part))
    yield from _times_of_upstreams(traffic)


def _times_of_upstreams(traffic: Traffic) -> Iterator[Metric]:
    found = (
        ((route.path, upstream), sent, counts.seconds)
        for route in list(traffic.routes.values())
        for upstream, counts in list(route.upstreams.items())
        if upstream and (sent := counts.sent)
    )
    for part in batches(found):
        family = SummaryMetricFamily(
            "slb_upstream_request_duration_seconds",
            "From when a request was sent to the upstream to its end.",
            labels=("route", "upstream"),
        )
        for labels, sent, seconds in part:
            family.add_metric(labels, sent, seconds)
        yield family


def _bytes(traffic: Traffic) -> Iterator[Metric]:
    routes = list(traffic.routes.values())
    for name, text, by_route in (
        ("slb_request_bytes", "Of requests' bodies.", [(each.path, each.bytes_in) for each in routes]),
        ("slb_response_bytes", "Of replies' bodies.", [(each.path, each.bytes_out) for each in routes]),
    ):
        for part in batches(by_route):
            yield counters(name, text, ("route",), (((path,), count) for path, count in part))
