"""A process's metrics as text, made in slices: with thousands of routes it has megabytes, and traffic goes on."""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

_SLICE = 200  # samples written between two turns of the event loop: a few milliseconds


PLAIN = "text/plain; version=0.0.4; charset=utf-8"  # plain names and labels: all versions read it
OPEN_METRICS = openmetrics.CONTENT_TYPE_LATEST
_END = b"# EOF\n"


def wants_open_metrics(accept: str) -> bool:
    """Whether a scraper that sends this Accept reads OpenMetrics, which alone has exemplars."""
    return any(each.partition(";")[0].strip() == "application/openmetrics-text" for each in accept.split(","))


async def text_of_process(*collectors: Collector, open_metrics: bool = False) -> bytes:
    """The metrics of `collectors`, and the system's of this process (`process_*`; Linux only). A large family
    should come in several parts, one behind the other."""
    pieces: list[bytes] = []
    name, written = "", 0
    for collector in (*collectors, ProcessCollector(registry=None)):
        for family in collector.collect():
            for part in _parts(family):
                lines = text_of([part], open_metrics).removesuffix(_END)
                # HELP and TYPE stand once.
                pieces.append(lines.split(b"\n", 2)[2] if family.name == name else lines)
                name, written = family.name, written + len(part.samples)
                if written >= _SLICE:
                    written = 0
                    await asyncio.sleep(0)
    return b"".join(pieces) + _END * open_metrics


def _parts(family: Metric) -> Iterator[Metric]:
    for start in range(0, len(family.samples) or 1, _SLICE):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[start : start + _SLICE]
        yield part


def text_of(families: Iterable[Metric], open_metrics: bool) -> bytes:
    """Both formats cost about the same: names are all of those that need no escaping."""
    if open_metrics:
        return openmetrics.generate_latest(Shown(families), escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-any-return, no-untyped-call]
    return generate_latest(Shown(families))


class Shown(Collector):
    """Families as they are."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
