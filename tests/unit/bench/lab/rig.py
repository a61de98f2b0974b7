"""A small simulated fleet."""

from collections.abc import Callable
from random import Random

from bench.lab.model import Arrivals, Client, LruCache, Measures, Schedule, Server, Work, ZipfKeys
from slb.balance.upstream import LiveUpstream
from slb.model import Upstream


def server(schedule: Schedule, capacity: int = 10, work: Work | None = None) -> Server:
    return Server("10.0.0.1:80", schedule, LruCache(capacity), work or Work())


def note(schedule: Schedule, into: list[tuple[float, bool]]) -> Callable[[bool], None]:
    """Notes when an answer came, and whether it was a hit."""
    return lambda hit: into.append((round(schedule.now, 9), hit))


class OneServer:
    """One client in front of one server, with a Poisson process of single requests."""

    def __init__(self, seed: int, rate: float, keys: int, capacity: int, work: Work) -> None:
        self.schedule = Schedule()
        self.measures = Measures()
        self.server = server(self.schedule, capacity, work)
        only = LiveUpstream(Upstream.of(self.server.member))
        client = Client(lambda key: only, {only.member: self.server}, self.schedule, self.measures)
        self.only = only
        rng = Random(seed)
        self.keys = ZipfKeys(keys, 1.0, rng)
        self.arrivals = Arrivals(self.schedule, [client], self.keys, rate, 1, rng)

    def run(self, seconds: float) -> None:
        """Let requests come for so long, and all be answered."""
        self.arrivals.begin(seconds)
        self.schedule.drain()
