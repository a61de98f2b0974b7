"""A process's metrics as text, made in slices: with thousands of routes it has megabytes, and traffic goes on."""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_SLICE = 200  # samples written between two turns of the event loop: a few milliseconds


async def text_of_process(*collectors: Collector) -> bytes:
    """The metrics of `collectors`, and the system's of this process (`process_*`; Linux only). A large family
    should come in several parts, one behind the other."""
    pieces: list[bytes] = []
    name, written = "", 0
    for collector in (*collectors, ProcessCollector(registry=None)):
        for family in collector.collect():
            for part in _parts(family):
                lines = generate_latest(Shown([part]))
                # HELP and TYPE stand once.
                pieces.append(lines.split(b"\n", 2)[2] if family.name == name else lines)
                name, written = family.name, written + len(part.samples)
                if written >= _SLICE:
                    written = 0
                    await asyncio.sleep(0)
    return b"".join(pieces)


def _parts(family: Metric) -> Iterator[Metric]:
    for start in range(0, len(family.samples) or 1, _SLICE):
        part = Metric(family.name, family.documentation, family.type)
        part.samples = family.samples[start : start + _SLICE]
        yield part


class Shown(Collector):
    """Families as they are, for `generate_latest`."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
