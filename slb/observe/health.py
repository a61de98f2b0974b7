"""What one process counts of the health of its upstreams, and how it is shown to Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from slb.observe.families import by_labels, counter, counters, families, gauge, gauges, read_gauge


@dataclass
class HealthCounts:
    """`checks`: active ones, by upstream and result; `stuck`: of upstreams that ever were; `panicking`: the
    routes that are in panic now;
    `isolated`: whether this instance alone fails with a route, of routes with which it once did;
    `..._of_the_gone`: of upstreams that have left."""

    upstreams_up: Callable[[], Iterable[tuple[str, bool]]] = read_gauge(
        "slb_upstream_up", "0 while it is ejected, or down.", "upstream"
    )
    sick_since: Callable[[], Iterable[tuple[str, float]]] = read_gauge(
        "slb_upstream_sick_since_seconds",
        "Since when it is ejected, down, or to be ejected and kept, in seconds since 1970; while it is.",
        "upstream",
    )
    ejections: defaultdict[tuple[str, str], int] = counter(
        "slb_upstream_ejections", "The same, by upstream.", "upstream", "reason"
    )
    ejections_of_the_gone: int = 0
    busy: defaultdict[str, int] = counter(
        "slb_upstream_busy", "Times an upstream was set aside because it said that it is full.", "upstream"
    )
    stuck: dict[str, int] = gauge(
        "slb_upstream_stuck", "1 while it owes an answer for too long, ejected or not.", "upstream"
    )
    checks: defaultdict[tuple[str, str], int] = field(default_factory=partial(defaultdict, int))
    checks_of_the_gone: Counter[str] = field(default_factory=Counter)
    panics: defaultdict[str, int] = counter("slb_panics", "Times a route began to panic.", "route")
    panicking: set[str] = field(default_factory=set)
    isolated: dict[str, bool] = field(default_factory=dict)

    def follow_routes(self, routes: Collection[str]) -> None:
        self.panicking.intersection_update(routes)
        for route in [route for route in self.isolated if route not in routes]:
            del self.isolated[route]
        for route in [route for route in self.panics if route not in routes]:
            del self.panics[route]

    def forget_upstreams(self, members: Iterable[str]) -> None:
        """An upstream's own series end with it; what it had counted stays in the totals."""
        gone = frozenset(members)
        if not gone:  # as on most swaps
            return
        for key in [key for key in self.ejections if key[0] in gone]:
            self.ejections_of_the_gone += self.ejections.pop(key)
        for member in gone & self.busy.keys():
            del self.busy[member]
        for member in gone & self.stuck.keys():
            del self.stuck[member]
        for key in [key for key in self.checks if key[0] in gone]:
            self.checks_of_the_gone[key[1]] += self.checks.pop(key)


def health_families(counts: HealthCounts) -> Iterator[Metric]:
    total = counts.ejections_of_the_gone + sum(list(counts.ejections.values()))
    yield CounterMetricFamily("slb_ejections", "Upstreams taken out for failing requests.", value=total)
    yield from families(counts)
    panicking = [((route,), route in counts.panicking) for route in list(counts.panics)]
    text = "1 while too few upstreams are available and all of them serve."
    yield gauges("slb_panic", text, ("route",), panicking)
    text = "1 while this instance fails with all upstreams of the route and others do not: it is the cause itself."
    yield gauges(
        "slb_isolated", text, ("route",), [((route,), now) for route, now in list(counts.isolated.items())]
    )


def check_families(counts: HealthCounts) -> Iterator[Metric]:
    checks = list(counts.checks.items())
    totals = {result: counts.checks_of_the_gone[result] for result in ("passed", "failed")}
    for (_, result), count in checks:
        totals[result] += count
    yield counters("slb_checks", "Active checks made by this instance.", ("result",), by_labels(totals))
    yield counters("slb_health_checks", "The same, by upstream.", ("upstream", "result"), checks)
