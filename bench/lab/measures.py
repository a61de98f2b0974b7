"""What a run is judged by: counts for each second, and how busy every upstream was."""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from bench.lab.server import Server


class Second(NamedTuple):
    """What was answered within one second of simulated time."""

    requests: int
    hits: int

    @property
    def reads(self) -> int:
        """Reads of the database: whatever a cache did not have."""
        return self.requests - self.hits

    @property
    def hit_rate(self) -> float:
        """1.0 where nothing was asked."""
        return self.hits / self.requests if self.requests else 1.0


class Measures:
    """Filled by the clients of a run: one call for each answer."""

    def __init__(self) -> None:
        self._requests: defaultdict[int, int] = defaultdict(int)
        self._hits: defaultdict[int, int] = defaultdict(int)
        self.latencies = array("d")

    def answered(self, now: float, hit: bool, latency: float) -> None:
        second = int(now)
        self._requests[second] += 1
        self._hits[second] += hit
        self.latencies.append(latency)

    def second(self, number: int) -> Second:
        """The one that begins at `number`."""
        return Second(self._requests[number], self._hits[number])

    def between(self, begin: int, end: int) -> Second:
        """All seconds from `begin` up to, without, `end` in one."""
        seconds = [self.second(number) for number in range(begin, end)]
        return Second(*(sum(each) for each in zip(*seconds, strict=True))) if seconds else Second(0, 0)


class Occupancies:
    """Samples of every server's occupancy: seconds of requests present for each second since the last sample."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self._last: dict[str, float] = {}
        self._at = 0.0
        self.samples: list[dict[str, float]] = []

    def sample(self, now: float) -> None:
        """Of the time since the last one."""
        passed = now - self._at
        occupied = {member: server.occupied() for member, server in self._servers.items()}
        self.samples.append({each: (occupied[each] - self._last.get(each, 0.0)) / passed for each in occupied})
        self._last, self._at = occupied, now

    def lows(self) -> list[float]:
        return [min(sample.values()) for sample in self.samples]

    def highs(self) -> list[float]:
        return [max(sample.values()) for sample in self.samples]
