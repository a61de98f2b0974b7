"""The metrics that slb declares, as Prometheus names them: what dashboards and rules may use."""

import re
from collections.abc import Mapping

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric

from slb.observe.collectors import MetricsCollector
from tools.reference import metrics_of_all_roles

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("_count", "_sum"),
    "gauge": ("",),
}
"""By a family's type, how the names of its samples end."""
SCRAPED = ("job", "instance")
"""Labels that Prometheus adds."""
_OURS = re.compile(r"\b(?:slb|process)_[a-z_]+\b")


def declared() -> dict[str, frozenset[str]]:
    """Each name of a sample, and the labels it has, `job` and `instance` included."""
    families = [*MetricsCollector(metrics_of_all_roles()).collect(), *ProcessCollector(registry=None).collect()]
    return {each.name + suffix: _labels(each) for each in families for suffix in SUFFIXES[each.type]}


def _labels(family: Metric) -> frozenset[str]:
    bucket = ("le",) if family.type == "histogram" else ()
    return frozenset((*getattr(family, "_labelnames", ()), *bucket, *SCRAPED))


def faults(expression: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """What of a PromQL expression is not in `known`: metrics, and labels that none of its metrics has."""
    names = set(_OURS.findall(expression))
    unknown = [f"there is no metric {name}" for name in sorted(names - known.keys())]
    labels = frozenset().union(SCRAPED, *(known.get(name, ()) for name in names))
    return unknown + [f"no metric here has the label {each}" for each in sorted(_labels_of(expression) - labels)]


def _labels_of(expression: str) -> set[str]:
    """The labels in `{...}`, `by (...)` and `on (...)`."""
    matchers = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression)
    return {*matchers, *(name.strip() for each in grouped for name in each.split(",") if name.strip())}
