"""What one looks at when a route fails or is slow: the route, and its upstreams."""

from tools.grafana.model import Board, Panel, Row, Variable
from tools.grafana.promql import errors, least, mean, most, quantile, rate, total

_ROUTE = 'route=~"$route"'
_UPSTREAM = 'upstream=~"$upstream"'
_BOTH = f"{_ROUTE},{_UPSTREAM}"
_ROUTES = Variable("route", 'slb_route_requests_total{job=~"$job"}', "route")
_UPSTREAMS = Variable("upstream", 'slb_requests_total{job=~"$job",route=~"$route"}', "upstream")
_SHARES = (0.5, 0.9, 0.99)

_ANSWERS = Row(
    "Answers",
    (
        Panel(
            "Requests by route",
            "reqps",
            {rate("slb_route_requests_total", "route", _ROUTE): "{{route}}"},
            "All answers, those of clients that left too.",
            stacked=True,
        ),
        Panel(
            "Failed",
            "percentunit",
            {errors("route", _ROUTE): "{{route}}"},
            "The share of answers that are 5xx, or broke off. The alert SlbRouteFails is at 0.01.",
        ),
        Panel(
            "By status and reason",
            "reqps",
            {rate("slb_requests_total", "code, reason", _ROUTE): "{{code}} {{reason}}"},
            "With a reason slb gave the answer itself.",
        ),
        Panel(
            "Panic",
            "bool",
            {most("slb_panic", "route", _ROUTE): "{{route}}"},
            "1: too few upstreams are available, and all are used.",
        ),
        Panel(
            "Isolated",
            "bool",
            {most("slb_isolated", "route, instance", _ROUTE): "{{route}} {{instance}}"},
            "1: all upstreams fail at this instance, and not at others.",
        ),
    ),
)
_TIME = Row(
    "Time",
    (
        Panel(
            "Duration",
            "s",
            {
                quantile(share, "slb_request_duration_seconds", "route", _ROUTE): f"p{100 * share:g} {{{{route}}}}"
                for share in _SHARES
            },
            "From a request's head to its end.",
        ),
        Panel(
            "Time to first byte",
            "s",
            {
                quantile(
                    share, "slb_time_to_first_byte_seconds", "route", _ROUTE
                ): f"p{100 * share:g} {{{{route}}}}"
                for share in _SHARES
            },
            "From a request's head to its reply's.",
        ),
        Panel(
            "Waiting for a slot",
            "s",
            {
                quantile(share, "slb_queue_wait_seconds", "route", _ROUTE): f"p{100 * share:g} {{{{route}}}}"
                for share in _SHARES
            },
            "Of requests that had to wait and got one.",
        ),
        Panel(
            "Bodies",
            "Bps",
            {
                rate("slb_request_bytes_total", "route", _ROUTE): "in {{route}}",
                rate("slb_response_bytes_total", "route", _ROUTE): "out {{route}}",
            },
            "Counted when a request ends.",
        ),
    ),
)
_KEYS = Row(
    "Keys (consistent_hash)",
    (
        Panel(
            "Upstreams passed over",
            "short",
            {mean("slb_ring_distance", "route", _ROUTE): "{{route}}"},
            "In the mean, since they were busy: 0 keeps caches warm.",
        ),
        Panel(
            "Requests without a key or a ring",
            "reqps",
            {
                rate("slb_ring_keyless_total", "route", _ROUTE): "no key, {{route}}",
                rate("slb_ring_unready_total", "route", _ROUTE): "no ring, {{route}}",
            },
            "They were sent round-robin.",
        ),
        Panel(
            "Share of the zone's own ring",
            "percentunit",
            {
                least("slb_zone_share", "instance, route", _ROUTE): "share, {{route}} {{instance}}",
                least("slb_zone_health", "instance, route", _ROUTE): "health, {{route}} {{instance}}",
            },
            "Where health falls, latency takes the zone its share.",
        ),
        Panel(
            "Rings that fade in",
            "short",
            {most("slb_ring_fading", "route", _ROUTE): "{{route}}"},
            "New upstreams are taking over their keys.",
        ),
    ),
)
_STATE = Row(
    "State",
    (
        Panel(
            "Available",
            "bool",
            {least("slb_upstream_up", "upstream", _UPSTREAM): "{{upstream}}"},
            "0: ejected, or down, as any instance sees it. Of those with a check, or once ejected.",
        ),
        Panel(
            "Stuck",
            "bool",
            {most("slb_upstream_stuck", "upstream", _UPSTREAM): "{{upstream}}"},
            "1: it owes an answer for too long, ejected for that or not. Of those that ever did.",
        ),
        Panel(
            "Sick for",
            "s",
            {f"time() - {least('slb_upstream_sick_since_seconds', 'upstream', _UPSTREAM)}": "{{upstream}}"},
            "Since it was ejected, went down, or was to be ejected and kept. Of those that are so now.",
        ),
        Panel(
            "In flight, from all instances",
            "short",
            {most("slb_upstream_inflight", "upstream", f'scope="global",{_UPSTREAM}'): "{{upstream}}"},
            "As the ledger counts it: of routes that need slots, and absent while Redis does not answer.",
        ),
        Panel(
            "In flight, added up",
            "short",
            {total("slb_upstream_inflight", "upstream", f'scope="local",{_UPSTREAM}'): "{{upstream}}"},
            "What each instance counts itself, of all routes.",
        ),
        Panel(
            "Ejections",
            "short",
            {rate("slb_upstream_ejections_total", "upstream, reason", _UPSTREAM): "{{upstream}} {{reason}}"},
            "A second.",
        ),
        Panel(
            "Busy",
            "short",
            {rate("slb_upstream_busy_total", "upstream", _UPSTREAM): "{{upstream}}"},
            "Times a second that it said it is full, and was set aside.",
        ),
        Panel(
            "Checks that failed",
            "short",
            {rate("slb_health_checks_total", "upstream", f'result="failed",{_UPSTREAM}'): "{{upstream}}"},
            "A second; one instance checks for all.",
        ),
        Panel(
            "Checks",
            "short",
            {rate("slb_checks_total", "result"): "{{result}}"},
            "Flat at 0 over all instances: nobody checks.",
        ),
    ),
)
_SERVICE = Row(
    "Service",
    (
        Panel(
            "Requests",
            "reqps",
            {rate("slb_requests_total", "upstream", _BOTH): "{{upstream}}"},
            "By who served them.",
            stacked=True,
        ),
        Panel(
            "Failed",
            "reqps",
            {rate("slb_requests_total", "upstream, code", f'code=~"5..",{_BOTH}'): "{{upstream}} {{code}}"},
            "Answers 5xx, its own and those that slb gave for it.",
        ),
        Panel(
            "Mean time at the upstream",
            "s",
            {mean("slb_upstream_request_duration_seconds", "upstream", _BOTH): "{{upstream}}"},
            "Without the wait for a slot: one line above the others is a slow upstream.",
        ),
        Panel(
            "Seconds of work in a second",
            "short",
            {total("slb_upstream_occupancy", "upstream", _BOTH): "{{upstream}}"},
            "Of routes with keys.",
        ),
        Panel(
            "Effective load",
            "short",
            {most("slb_upstream_effective_load", "upstream", _BOTH): "{{upstream}}"},
            "What a bounded load compares with its threshold.",
        ),
    ),
)

ROUTE = Board("route", "slb / route", (_ROUTES,), (_ANSWERS, _TIME, _KEYS))
UPSTREAMS = Board("upstreams", "slb / upstreams", (_ROUTES, _UPSTREAMS), (_STATE, _SERVICE))
