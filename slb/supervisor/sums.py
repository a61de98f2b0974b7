"""The workers' metrics as one: counters, histograms and requests in flight are added, states are combined. Of a
counter its growth since the last read is added, so that the sum never goes down: not when a worker dies, nor when
one starts a series again. Prometheus would take its whole value for new events. A series of a route or an upstream
ends once no worker has it."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

from slb.admission.shown import LedgerShown, Mode, PoolShown
from slb.api.shapes import TrafficShown, UpstreamsShown
from slb.observe.exposition import text_of

_COMBINED: dict[str, Callable[[float, float], float]] = {
    "slb_redis_up": min,
    "slb_redis_polling": max,
    "slb_mirror_staleness_seconds": max,
    "slb_skipped_entries": max,
    "slb_config_refused": max,
    "slb_tls_certificate_not_after_seconds": min,
    "slb_upstream_up": min,
    "slb_upstream_stuck": max,
    "slb_upstream_sick_since_seconds": min,
    "slb_panic": max,
    "slb_isolated": max,
    "slb_ledger_shared": min,
    "slb_ledger_above_cap": max,
    "slb_ring_fading": max,
    "slb_jobs": max,
    "slb_job_oldest_seconds": max,
    "slb_job_outcomes": max,
    "slb_zone_share": min,
    "slb_zone_health": min,
    "slb_build_info": max,
    "process_start_time_seconds": min,
    "process_open_fds": max,
    "process_max_fds": min,
}
"""Of what every worker sees for itself, the worst holds; all else is a share of a sum."""

_GLOBAL = ("scope", "global")
"""The label of figures of the whole fleet, which are the same at each worker, read at different seconds."""

_END = "# EOF\n"  # of OpenMetrics
_LASTING = ("counter", "histogram", "summary")
_OF_WHAT_LEAVES = frozenset({"route", "upstream"})  # labels of samples that end once no worker has them

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]  # name and sorted labels of one line of the text format


@dataclass
class Family:
    """`exemplars`: of samples that have one, where the text was OpenMetrics."""

    kind: str
    help: str
    samples: dict[SampleKey, float] = field(default_factory=dict)
    exemplars: dict[SampleKey, Exemplar] = field(default_factory=dict)

    def empty(self) -> "Family":
        return Family(self.kind, self.help)

    def add(self, name: str, other: "Family") -> None:
        for key, value in other.samples.items():
            combine = max if _GLOBAL in key[1] else _COMBINED.get(name)
            if combine and key in self.samples:
                self.samples[key] = combine(self.samples[key], value)
            else:
                self.samples[key] = self.samples.get(key, 0.0) + value
        for key, exemplar in other.exemplars.items():
            known = self.exemplars.get(key)
            if known is None or float(known.timestamp or 0.0) < float(exemplar.timestamp or 0.0):
                self.exemplars[key] = exemplar


Families = dict[str, Family]


def parsed(text: str) -> Families:
    """A process's /metrics, in either format, by the metric's name. Raises ValueError."""
    families: Families = {}
    is_open = text.endswith(_END)
    read = openmetrics_parser.text_string_to_metric_families if is_open else text_string_to_metric_families
    for metric in read(text):
        family = families.setdefault(metric.name, Family(metric.type, metric.documentation))
        for sample in metric.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            family.samples[key] = sample.value
            if sample.exemplar is not None:
                family.exemplars[key] = sample.exemplar
    return families


def added_up(parts: Iterable[Families]) -> Families:
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
    return tuple(label for label in key[1] if label[0] != "le")


class Sums:
    """The sum over workers that come and go; `source` names one life of one worker."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, Families] = {}
        self._counted: Families = {}

    def read(self, source: Hashable, text: str) -> None:
        """Add what `source` shows now, later than before. Raises ValueError for another format."""
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

    def text(self, open_metrics: bool = False) -> bytes:
        total = added_up(self._latest.values())
        for name, family in self._counted.items():
            living = total.setdefault(name, family.empty()).samples
            for key in family.samples.keys() - living.keys():
                if not _OF_WHAT_LEAVES.isdisjoint(dict(key[1])):
                    del family.samples[key]
            total[name] = Family(family.kind, family.help, family.samples, total[name].exemplars)
        return text_of((_metric(name, family) for name, family in total.items()), open_metrics)


def _metric(name: str, family: Family) -> Metric:
    metric = Metric(name, family.help, family.kind)
    for (sample, labels), value in family.samples.items():
        metric.add_sample(sample, dict(labels), value, exemplar=family.exemplars.get((sample, labels)))
    return metric


_WORST: tuple[Mode, ...] = ("local", "settling", "late", "shared")

Traffic = Mapping[str, Any]  # a TrafficShown as a worker answered it: figures by name, and figures by name by name

_GAUGES = ("inflight", "inflight_by_upstream", "client_connections")  # what is now: it ends with the process


def combined(parts: Iterable[LedgerShown]) -> LedgerShown:
    by_pool: dict[str, list[PoolShown]] = {}
    for part in parts:
        for pool, shown in part["pools"].items():
            by_pool.setdefault(pool, []).append(shown)
    return LedgerShown(pools={pool: _one(shown) for pool, shown in sorted(by_pool.items())})


def _one(parts: list[PoolShown]) -> PoolShown:
    return PoolShown(
        mode=min((each["mode"] for each in parts), key=_WORST.index),
        error=next((each["error"] for each in parts if each["error"]), ""),
        holders=max((each["holders"] for each in parts if each["holders"] is not None), default=None),
        queued=max((each["queued"] for each in parts if each["queued"] is not None), default=None),
        held=_sum(each["held"] for each in parts),
        waiting=_sum(each["waiting"] for each in parts),
        scores=_most([each["scores"] for each in parts if each["scores"] is not None]),
    )


def _most(parts: Sequence[Mapping[str, int]]) -> dict[str, int] | None:
    """Each has read the same scores, at its own moment; None where none has."""
    if not parts:
        return None
    most: Counter[str] = Counter()
    for part in parts:
        most |= Counter(part)
    return dict(most)


def no_traffic() -> Traffic:
    nothing: dict[str, Any] = dict.fromkeys(TrafficShown.__annotations__, 0)
    return {**nothing, "by_code": {}, "by_reason": {}, "by_route": {}, "inflight_by_upstream": {}}


def lasting(traffic: Traffic) -> Traffic:
    """What stays of a process that has ended, so that no count goes down."""
    return {name: value for name, value in traffic.items() if name not in _GAUGES}


def added(parts: Iterable[Traffic]) -> Traffic:
    return _sum((no_traffic(), *parts))


def _sum(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum by name of figures, and of mappings in the same way."""
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            is_nested = isinstance(value, Mapping)
            total[name] = _sum((total.get(name, {}), value)) if is_nested else total.get(name, 0) + value
    return total


def worst(seen: Collection[UpstreamsShown]) -> UpstreamsShown:
    """Each ejects for itself, often the same upstream: their sum would count it twice."""
    return UpstreamsShown(
        down=max(each["down"] for each in seen),
        ejected=max(each["ejected"] for each in seen),
        panic=sorted({route for each in seen for route in each["panic"]}),
    )
