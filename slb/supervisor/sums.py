"""The workers' metrics as one: counters, histograms and requests in flight are added, states are combined.

Counters never go down when a worker dies: what it had counted when it was last read stays in the sum. That is what
the reader of the sum saw last, so no rate shows a step.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_COMBINED: dict[str, Callable[[float, float], float]] = {
    "slb_redis_up": min,
    "slb_redis_polling": max,
    "slb_mirror_staleness_seconds": max,
    "slb_skipped_entries": max,
    "slb_tls_certificate_not_after_seconds": min,
    "slb_upstream_up": min,
    "slb_panic": max,
    "slb_ledger_shared": min,
    "slb_ring_fading": max,
    "slb_zone_share": min,
    "slb_zone_health": min,
}
"""Of what every worker sees for itself, the worst holds; all else is a share of a sum."""

_GLOBAL = ("scope", "global")
"""The label of what each worker says of the whole fleet: the same, but for the second in which it is read."""

_LASTING = ("counter", "histogram")

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]
"""Name and sorted labels of one line of the text format."""


@dataclass
class Family:
    """One metric: its kind, its help, its samples."""

    kind: str
    help: str
    samples: dict[SampleKey, float] = field(default_factory=dict)

    def add(self, name: str, other: "Family") -> None:
        """Take in another process's samples of the same metric."""
        for key, value in other.samples.items():
            combine = max if _GLOBAL in key[1] else _COMBINED.get(name)
            if combine and key in self.samples:
                self.samples[key] = combine(self.samples[key], value)
            else:
                self.samples[key] = self.samples.get(key, 0.0) + value


Families = dict[str, Family]


def parsed(text: str) -> Families:
    """A process's /metrics, by the metric's name. Raises ValueError."""
    families: Families = {}
    for metric in text_string_to_metric_families(text):
        family = families.setdefault(metric.name, Family(metric.type, metric.documentation))
        for sample in metric.samples:
            family.samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return families


def added_up(parts: Iterable[Families]) -> Families:
    """The sum of several processes."""
    total: Families = {}
    for families in parts:
        for name, family in families.items():
            total.setdefault(name, Family(family.kind, family.help)).add(name, family)
    return total


def lasting(families: Families) -> Families:
    """What stays of a process that has ended: what it counted, no longer told apart by upstream."""
    kept: Families = {}
    for name, family in families.items():
        if family.kind in _LASTING:
            kept[name] = Family(family.kind, family.help, _without_upstream(family.samples))
    return kept


def _without_upstream(samples: Mapping[SampleKey, float]) -> dict[SampleKey, float]:
    merged: defaultdict[SampleKey, float] = defaultdict(float)
    for (name, labels), value in samples.items():
        merged[name, tuple((label, "" if label == "upstream" else text) for label, text in labels)] += value
    return dict(merged)


class Sums:
    """The sum over workers that come and go; `source` names one life of one worker."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, Families] = {}
        self._ended: Families = {}

    def read(self, source: Hashable, text: str) -> None:
        """Keep what `source` shows now. Raises ValueError for what is not in the text format."""
        self._latest[source] = parsed(text)

    def ended(self, source: Hashable) -> None:
        """`source` is gone; its counts stay."""
        self._ended = added_up((self._ended, lasting(self._latest.pop(source, {}))))

    def text(self) -> bytes:
        """The sum, in the text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Shown(added_up((self._ended, *self._latest.values()))))
        return generate_latest(registry)


class _Shown(Collector):
    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for name, family in self._families.items():
            metric = Metric(name, family.help, family.kind)
            for (sample, labels), value in family.samples.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
