"""What one process counts of the health of its upstreams, and how it is shown to Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from slb.observe.families import by_one, counters, gauges


class HealthCounts:
    """`ejections`: by upstream and reason; `checks`: active ones, by upstream and result; `panics`: how often each
    route began to panic; `panicking`: the routes that do now. `upstreams_up`: upstreams, and whether each is up."""

    def __init__(self) -> None:
        self.upstreams_up: Callable[[], Iterable[tuple[str, bool]]] = lambda: ()
        self.ejections: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.ejections_of_the_gone = 0
        self.checks: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.checks_of_the_gone: Counter[str] = Counter()
        self.panics: defaultdict[str, int] = defaultdict(int)
        self.panicking: set[str] = set()

    def follow_routes(self, routes: Collection[str]) -> None:
        """What was counted of routes that are none of these any more ends with them."""
        self.panicking.intersection_update(routes)
        for route in [route for route in self.panics if route not in routes]:
            del self.panics[route]

    def forget_upstreams(self, members: Iterable[str]) -> None:
        """An upstream's own series end with it; what it had counted stays in the totals."""
        gone = frozenset(members)
        if not gone:  # as on most swaps
            return
        for key in [key for key in self.ejections if key[0] in gone]:
            self.ejections_of_the_gone += self.ejections.pop(key)
        for key in [key for key in self.checks if key[0] in gone]:
            self.checks_of_the_gone[key[1]] += self.checks.pop(key)


def health_families(counts: HealthCounts) -> Iterator[Metric]:
    """What ejection and panic show."""
    ups = (((member,), is_up) for member, is_up in counts.upstreams_up())
    yield gauges("slb_upstream_up", "0 while it is ejected, or down.", ("upstream",), ups)
    ejections = list(counts.ejections.items())
    total = counts.ejections_of_the_gone + sum(count for _, count in ejections)
    yield CounterMetricFamily("slb_ejections", "Upstreams taken out for failing requests.", value=total)
    yield counters("slb_upstream_ejections", "The same, by upstream.", ("upstream", "reason"), ejections)
    panics = by_one(counts.panics)
    panicking = [(labels, labels[0] in counts.panicking) for labels, _ in panics]
    text = "1 while too few upstreams are available and all of them serve."
    yield gauges("slb_panic", text, ("route",), panicking)
    yield counters("slb_panics", "Times a route began to panic.", ("route",), panics)


def check_families(counts: HealthCounts) -> Iterator[Metric]:
    """What active checks show."""
    checks = list(counts.checks.items())
    totals = {result: counts.checks_of_the_gone[result] for result in ("passed", "failed")}
    for (_, result), count in checks:
        totals[result] += count
    yield counters("slb_checks", "Active checks made by this instance.", ("result",), by_one(totals))
    yield counters("slb_health_checks", "The same, by upstream.", ("upstream", "result"), checks)
