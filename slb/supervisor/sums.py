"""The workers' metrics as one: counters, histograms and requests in flight are added, states are combined.

Counters are added up by what each has grown since it was read before. So the sum never goes down, which Prometheus
would take for a counter that began anew and its whole value for events of this moment: not when a worker dies, nor
when workers let go of an upstream's series one after another, nor when one of them starts a series again. A series
of a route or an upstream ends once no worker has it any more.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from slb.observe.exposition import Shown

_COMBINED: dict[str, Callable[[float, float], float]] = {
    "slb_redis_up": min,
    "slb_redis_polling": max,
    "slb_mirror_staleness_seconds": max,
    "slb_skipped_entries": max,
    "slb_tls_certificate_not_after_seconds": min,
    "slb_upstream_up": min,
    "slb_panic": max,
    "slb_ledger_shared": min,
    "slb_ledger_above_cap": max,
    "slb_ring_fading": max,
    "slb_jobs": max,
    "slb_zone_share": min,
    "slb_zone_health": min,
    "slb_build_info": max,
    "process_start_time_seconds": min,
    "process_open_fds": max,
    "process_max_fds": min,
}
"""Of what every worker sees for itself, the worst holds; all else is a share of a sum."""

_GLOBAL = ("scope", "global")
"""The label of what each worker says of the whole fleet: the same, but for the second in which it is read."""

_LASTING = ("counter", "histogram", "summary")
_OF_WHAT_LEAVES = frozenset({"route", "upstream"})
"""Labels of samples that end once no worker has them: a route or an upstream may be gone for ever."""

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]
"""Name and sorted labels of one line of the text format."""


@dataclass
class Family:
    """One metric: its kind, its help, its samples."""

    kind: str
    help: str
    samples: dict[SampleKey, float] = field(default_factory=dict)

    def empty(self) -> "Family":
        """The same without samples."""
        return Family(self.kind, self.help)

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
            total.setdefault(name, family.empty()).add(name, family)
    return total


def _grown(now: Family, before: Family) -> Iterator[tuple[SampleKey, float]]:
    """By how much each sample has grown. Where one of a histogram's has shrunk, all of it began anew."""
    anew = {_of_one(key) for key, value in before.samples.items() if now.samples.get(key, 0.0) < value}
    for key, value in now.samples.items():
        yield key, value if _of_one(key) in anew else value - before.samples.get(key, 0.0)


def _of_one(key: SampleKey) -> Labels:
    """What the samples of one counter, histogram or summary have in common."""
    return tuple(label for label in key[1] if label[0] != "le")


class Sums:
    """The sum over workers that come and go; `source` names one life of one worker."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, Families] = {}
        self._counted: Families = {}

    def read(self, source: Hashable, text: str) -> None:
        """Take in what `source` shows now, which is later than what it showed before. Raises ValueError for what is
        not in the text format."""
        families, before = parsed(text), self._latest.get(source, {})
        for name, family in families.items():
            if family.kind in _LASTING and name not in _COMBINED:
                counted = self._counted.setdefault(name, family.empty()).samples
                for key, growth in _grown(family, before.get(name, family.empty())):
                    counted[key] = counted.get(key, 0.0) + growth
        self._latest[source] = families

    def ended(self, source: Hashable) -> None:
        """`source` is gone; its counts stay."""
        self._latest.pop(source, None)

    def text(self) -> bytes:
        """The sum, in the text format."""
        total = added_up(self._latest.values())
        for name, family in self._counted.items():
            living = total.setdefault(name, family.empty()).samples
            for key in family.samples.keys() - living.keys():
                if not _OF_WHAT_LEAVES.isdisjoint(dict(key[1])):
                    del family.samples[key]
            total[name] = family
        return generate_latest(Shown(_metric(name, family) for name, family in total.items()))


def _metric(name: str, family: Family) -> Metric:
    metric = Metric(name, family.help, family.kind)
    for (sample, labels), value in family.samples.items():
        metric.add_sample(sample, dict(labels), value)
    return metric
