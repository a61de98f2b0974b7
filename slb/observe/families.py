"""Families of samples for Prometheus: declared as fields of dataclasses, or made of plain dicts."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar

LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Seconds: from a cached answer to a generation of minutes."""


class Histogram:
    """Counts by upper bound; the last count is everything above the highest bound. `exemplars`: by the same index
    the last traced request, None where there was none."""

    __slots__ = ("counts", "exemplars", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.exemplars: dict[int, Exemplar] | None = None
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.sum += seconds

    def exemplify(self, seconds: float, trace: str, at: float) -> None:
        """Name the trace of a request that took `seconds`, which was counted; `at`: when, in seconds since 1970."""
        if self.exemplars is None:
            self.exemplars = {}
        self.exemplars[bisect_left(LATENCY_BOUNDS, seconds)] = Exemplar({"trace_id": trace}, seconds, at)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as Prometheus wants them."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, map(float, LATENCY_BOUNDS)), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found

    def exemplified(self) -> Sequence[tuple[str, float] | tuple[str, float, Exemplar]]:
        """The buckets, with their exemplars where they have one."""
        exemplars = self.exemplars
        if exemplars is None:
            return self.buckets()
        return [
            (*each, exemplars[index]) if index in exemplars else each for index, each in enumerate(self.buckets())
        ]


_T = TypeVar("_T")
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)

Rows = Iterable[tuple[Sequence[str], float]]  # the values of the labels, and the sample's own


def counter(name: str, text: str, *labels: str) -> Any:
    """A field shown as the counter `name` (without `_total`): an int; with `labels` a dict by their values (text or
    tuple)."""
    return _declared(CounterMetricFamily, name, text, labels, partial(defaultdict, int) if labels else int)


def gauge(name: str, text: str, *labels: str) -> Any:
    """A field that is shown as the gauge `name`: a bool; with `labels` a dict of numbers, as of a counter."""
    return _declared(GaugeMetricFamily, name, text, labels, dict if labels else bool)


def read_gauge(name: str, text: str, *labels: str) -> Any:
    """A field with a function that is called at a scrape for the gauge `name`. It returns a number; with `labels`
    tuples, each the labels' values and a number."""
    return _declared(GaugeMetricFamily, name, text, labels, lambda: tuple if labels else int)


def _declared(family: Any, name: str, text: str, labels: Sequence[str], make: Callable[[], Any]) -> Any:
    return field(default_factory=make, metadata={"family": partial(family, name, text), "labels": labels})


def families(counts: Any) -> Iterator[Metric]:
    """The families of a dataclass's declared fields, in their order."""
    for each in fields(counts):
        if "family" not in each.metadata:
            continue
        value, labels = getattr(counts, each.name), each.metadata["labels"]
        value = value() if callable(value) else value
        if labels:
            rows = by_labels(value) if isinstance(value, Mapping) else ((row[:-1], row[-1]) for row in value)
            yield _filled(each.metadata["family"](labels=labels), rows)
        else:
            yield each.metadata["family"](value=value)


def by_labels(counts: Mapping[Any, float]) -> Rows:
    # a copy, as others may add meanwhile
    return [
        (tuple(map(str, key)) if isinstance(key, tuple) else (key,), count) for key, count in list(counts.items())
    ]


def batches(rows: Iterable[_T], size: int = 200) -> Iterator[list[_T]]:
    """`rows` in lists of at most `size`, one at least, read only as they are needed."""
    left = iter(rows)
    yield list(islice(left, size))
    while batch := list(islice(left, size)):
        yield batch


def counters(name: str, text: str, labels: Sequence[str], rows: Rows) -> CounterMetricFamily:
    """`name` without `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def gauges(name: str, text: str, labels: Sequence[str], rows: Rows) -> GaugeMetricFamily:
    return _filled(GaugeMetricFamily(name, text, labels=labels), rows)


def _filled(family: _Family, rows: Rows) -> _Family:
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def histograms(
    name: str, text: str, by_label: Mapping[str, Histogram], label: str = "route"
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for value, histogram in by_label.items():
        family.add_metric((value,), histogram.exemplified(), histogram.sum)
    return family
