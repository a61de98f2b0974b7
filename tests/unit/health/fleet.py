"""A mirror filled by hand, with what follows availability in it."""

from random import Random
from typing import Any

from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.model import RouteRecord
from slb.observe.changes import What
from slb.observe.collectors import MetricsCollector
from slb.observe.metrics import Metrics
from slb.routing.availability import Availability
from slb.routing.mirror import Mirror
from slb.routing.table import Route


class Clock:
    """Time that passes when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Routes:
    """`members("/", 3, eject_after="2")` makes a route of u1:80, u2:80, u3:80."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.mirror = Mirror(Settings().route_settings, Random(1))
        self.mirror.on_swap(self.metrics.health.forget_upstreams)
        self.availability = Availability(self.mirror, self.metrics.health, self.note)

    def note(self, what: What, subject: str, detail: str) -> None:
        self.metrics.changes.note(what, subject, detail)

    def noted(self) -> list[tuple[str, str]]:
        """What was noted since the last call, for the fleet's log of changes."""
        return [(each.what, each.subject) for each in self.metrics.changes.take(100)]

    def members(self, path: str, count: int, **settings: str) -> None:
        members = frozenset(f"u{number}:80" for number in range(1, count + 1))
        self.mirror.update({path: RouteRecord(members, settings)}, {})

    def route(self, path: str = "/") -> Route:
        return self.mirror.table.routes[path]

    def live(self, number: int) -> LiveUpstream:
        found = self.mirror.upstream(f"u{number}:80")
        assert found is not None
        return found

    def serving(self, path: str = "/") -> list[int]:
        """The numbers of those that serve."""
        return [int(each.member[1:].partition(":")[0]) for each in self.route(path).serving]

    def shown(self, name: str) -> dict[tuple[Any, ...], float]:
        """A metric's samples: label values -> value."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in MetricsCollector(self.metrics).collect()
            for sample in family.samples
            if sample.name == name
        }
