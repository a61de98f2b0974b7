"""Prometheus's families of samples, made of what was counted in plain dicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from slb.observe.histogram import Histogram

_T = TypeVar("_T")
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)

Rows = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the sample's own."""


def batches(rows: Iterable[_T], size: int = 200) -> Iterator[list[_T]]:
    """For a family that is made in parts, of which there is always one; `rows` are asked for as they are needed."""
    left = iter(rows)
    yield list(islice(left, size))
    while batch := list(islice(left, size)):
        yield batch


def by_one(counts: Mapping[str, float]) -> Rows:
    """Rows with one label, of a dict to which others may add meanwhile."""
    return [((value,), count) for value, count in list(counts.items())]


def counters(name: str, text: str, labels: Sequence[str], rows: Rows) -> CounterMetricFamily:
    """`name` without `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def gauges(name: str, text: str, labels: Sequence[str], rows: Rows) -> GaugeMetricFamily:
    """What holds now."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), rows)


def _filled(family: _Family, rows: Rows) -> _Family:
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def histograms(name: str, text: str, by_route: Mapping[str, Histogram]) -> HistogramMetricFamily:
    """One for each route."""
    family = HistogramMetricFamily(name, text, labels=("route",))
    for route, histogram in by_route.items():
        family.add_metric((route,), histogram.buckets(), histogram.sum)
    return family
