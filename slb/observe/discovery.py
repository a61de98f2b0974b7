"""What discovery counts, and how it is shown to Prometheus."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from slb.observe.families import counters, gauges


@dataclass(frozen=True, slots=True)
class SourceShown:
    """`writer`: the name of the instance that writes, empty for none; `writes`: whether it is this one, else it
    does not follow the source and the rest is empty. `answered_at`: the source's last answer, seconds since the
    epoch, 0 for none. `held_back`: an empty answer is not believed yet."""

    source: str
    path: str
    writer: str
    writes: bool
    members: int = 0
    draining: int = 0
    answered_at: float = 0.0
    trouble: str = ""
    held_back: bool = False


class DiscoveryCounts:
    """Of one process; `sources` gives what is known of each."""

    def __init__(self) -> None:
        self.came = self.went = self.drained = self.writes = self.fenced = 0
        self.sources: Callable[[], Sequence[SourceShown]] = tuple


def discovery_families(counts: DiscoveryCounts) -> Iterator[Metric]:
    """Nothing where no source was ever known."""
    sources = counts.sources()
    if not sources and not counts.writes:
        return
    changes = [(("added",), counts.came), (("removed",), counts.went), (("drained",), counts.drained)]
    yield counters("slb_discovery_members_changed", "Upstreams added, removed, set to drain.", ("change",), changes)
    yield counters("slb_discovery_writes", "Changes of routes written here.", (), [((), counts.writes)])
    yield counters("slb_discovery_fenced", "Writes refused after a later lease.", (), [((), counts.fenced)])
    mine = [each for each in sources if each.writes]
    labels = ("source", "route")
    rows = {
        "members": [((each.source, each.path), float(each.members)) for each in mine],
        "answered": [((each.source, each.path), each.answered_at) for each in mine],
        "failing": [((each.source, each.path), float(bool(each.trouble))) for each in mine],
    }
    yield gauges(
        "slb_discovery_members", "Upstreams of a source that this instance writes.", labels, rows["members"]
    )
    yield gauges("slb_discovery_answered_seconds", "When the source last answered.", labels, rows["answered"])
    yield gauges("slb_discovery_failing", "1 while the source does not answer.", labels, rows["failing"])
