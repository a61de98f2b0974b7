"""How often a healthy upstream is taken for a slow one, and how soon a slow one is found: for `judge.py`."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import cycle
from math import log1p, sqrt
from random import Random
from typing import NamedTuple

from slb.balance.judge import Judge
from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings, Upstream

ENOUGH = RouteSettings().eject_after - 0.2  # what `routing/passive.py` takes for enough
LOAD = 0.63
WARM = 300  # answers before one gets slow
POLICIES = ("least in flight", "in turn")
APART = 1e4  # seconds between two requests that do not wait for each other


class Sizes(NamedTuple):
    """Seconds that requests take, 1 on average: `make` gives them one after another."""

    name: str
    make: Callable[[Random], Callable[[], float]]


class Route(NamedTuple):
    path: str
    upstreams: tuple[LiveUpstream, ...]


def log_normal(cv: float) -> Sizes:
    variance = log1p(cv * cv)
    return Sizes(
        f"log-normal, CV {cv:g}",
        lambda rng: lambda: rng.lognormvariate(-variance / 2, sqrt(variance)),
    )


def of_trace(name: str, tokens: Sequence[int]) -> Sizes:
    """In the order of the trace, from anywhere on."""
    mean = sum(tokens) / len(tokens)

    def make(rng: Random) -> Callable[[], float]:
        first = rng.randrange(len(tokens))
        sizes = cycle([*tokens[first:], *tokens[:first]])
        return lambda: next(sizes) / mean

    return Sizes(name, make)


def percentile_98(sizes: Sizes) -> float:
    """Over the median."""
    size = sizes.make(Random(1))
    drawn = sorted(size() for _ in range(20_000))
    return drawn[19_600] / drawn[10_000]


class Servers:
    """Of one slot each, with a line before it; one instance, all of whose answers are judged. `times`: as long as
    the others the first one takes, once `WARM` requests were sent."""

    def __init__(self, upstreams: int, sizes: Sizes, seed: int, times: float = 1.0) -> None:
        self.now, self.times, self.sent, self.found = 0.0, times, 0, 0
        self._rng = Random(seed)
        self._size = sizes.make(self._rng)
        self.judge = Judge(lambda: self.now)
        self.route = Route("/", tuple(LiveUpstream(Upstream.of(f"u{each}:80")) for each in range(upstreams)))
        self._free_at, self._inflight = [0.0] * upstreams, [0] * upstreams
        self._ends: list[tuple[float, int, float]] = []

    def send(self, policy: str) -> int:
        """One more request, after those have ended that end before; how many alarms these gave."""
        count = len(self.route.upstreams)
        due = self.now + self._rng.expovariate(LOAD * count)
        alarms = self.end(due)
        self.now = due
        least = min(self._inflight)
        free = [each for each, inflight in enumerate(self._inflight) if inflight == least]
        self.send_to(self.sent % count if policy == "in turn" else self._rng.choice(free))
        return alarms

    def send_to(self, server: int) -> None:
        self.sent += 1
        slower = self.times if server == 0 and self.sent > WARM else 1.0
        self._free_at[server] = end = max(self._free_at[server], self.now) + self._size() * slower
        self._inflight[server] += 1
        heappush(self._ends, (end, server, self.now))

    def end(self, until: float) -> int:
        alarms = 0
        while self._ends and self._ends[0][0] <= until:
            self.now, server, sent_at = heappop(self._ends)
            self._inflight[server] -= 1
            upstream = self.route.upstreams[server]
            self.judge.answered(self.route, upstream, self.now - sent_at, sent_at)
            if self.judge.slowness(upstream, self.route) >= ENOUGH:
                self.judge.clear(upstream, (self.route,))
                alarms += 1
        return alarms


def alarms_alone(upstreams: int, sizes: Sizes, requests: int, seed: int) -> int:
    """Alarms of so many requests none of which waits for another."""
    servers = Servers(upstreams, sizes, seed)
    alarms = 0
    for number in range(requests):
        servers.now += APART
        servers.send_to(number % upstreams)
        alarms += servers.end(servers.now + APART)
    return alarms


def alarms_in_line(policy: str, upstreams: int, sizes: Sizes, requests: int, seed: int) -> int:
    servers = Servers(upstreams, sizes, seed)
    return sum(servers.send(policy) for _ in range(requests))


def until_found(times: float, sizes: Sizes, seed: int, most: int) -> int | None:
    """Answers of one of eight that is so many `times` slower, until it is found; None: not within `most`."""
    servers = Servers(8, sizes, seed, times)
    for number in range(WARM + 8 * most):
        servers.now += APART
        servers.send_to(number % 8)
        if servers.end(servers.now + APART) and number % 8 == 0 and number >= WARM:
            return (number - WARM) // 8 + 1
    return None
