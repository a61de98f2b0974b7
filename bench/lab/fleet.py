"""A fleet in simulated time: upstreams with caches, client processes with slb's own policy or one that it might
have been, keys that come; and how big they all are."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.lab.model import Choose, Client, LruCache, Measures, Schedule, Server, ZipfKeys
from slb.balance.consistent_hash import ConsistentHash
from slb.balance.load_limit import LoadLimit
from slb.balance.load_stats import NONE, WINDOW
from slb.balance.ring import Ring
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.model import RouteSettings, Upstream

MakePolicy = Callable[[Random, Callable[[], float], str], ConsistentHash]


@dataclass(frozen=True, slots=True)
class Shape:
    """How big a fleet is. `rate` is keys a second over all clients, sent in batches of `fan_out`; there are `keys`
    different ones, asked for by Zipf's law with exponent 1, and room for `cache` of them in each upstream."""

    upstreams: int
    clients: int
    rate: float
    fan_out: int
    keys: int
    cache: int

    def scaled(self, scale: float) -> "Shape":
        """As many upstreams and keys, and as much traffic, as this part of it; each upstream has as much to do."""
        upstreams = max(round(self.upstreams * scale), 2)
        rate, keys = self.rate * upstreams / self.upstreams, max(round(self.keys * scale), 2 * self.fan_out)
        return replace(self, upstreams=upstreams, rate=rate, keys=keys)


class Fleet:
    """One run: everything that happens in it follows from `seed`. Upstreams are named by number."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        self.schedule = Schedule()
        self.measures = Measures()
        self.rng = Random(f"{seed} choices")
        self.keys = ZipfKeys(shape.keys, 1.0, Random(f"{seed} keys"))
        self.servers: dict[str, Server] = {}
        self._arriving = Random(f"{seed} arrivals")
        self._clients: list[Client] = []

    def add_servers(self, numbers: Iterable[int], cache: Callable[[int], int] | None = None) -> None:
        """Upstreams with empty caches; `cache` is how much room each has, where they are not all alike."""
        for number in numbers:
            room = cache(number) if cache is not None else self.shape.cache
            self.servers[member(number)] = Server(self.schedule, LruCache(room))

    def add_client(self, choose: Choose) -> None:
        """A client process that sends its requests as `choose` decides."""
        self._clients.append(Client(choose, self.servers, self.schedule, self.measures))

    def add_policy(
        self,
        make: MakePolicy,
        upstreams: Iterable[LiveUpstream],
        settings: RouteSettings,
        name: str,
        zone: str = "",
    ) -> ConsistentHash:
        """A client process that goes by a policy of its own, its rings already built; `name` is unlike any other
        client's, and is all that its own chances depend on beside the fleet's seed."""
        eligible = tuple(sorted(upstreams, key=lambda upstream: upstream.member))
        policy = make(Random(f"{self.seed} {name}"), self.schedule.clock, zone)
        policy.follow(eligible, settings)
        for _ in policy.steps():  # slices: no request waits here
            pass
        picked_from = RouteView(eligible)
        self.add_client(lambda key: policy.pick(picked_from, key))
        return policy

    def warm(self, ring: Ring, requests: int) -> None:
        """Fill the caches by so many requests by this ring, in no time."""
        caches = {upstream: self.servers[upstream.member].cache for upstream in ring.upstreams}
        for _ in range(requests):
            key = self.keys.draw()
            caches[ring.pick(key)].put(key)

    def begin(self, until: float) -> None:
        """Let requests come up to then, once `schedule` runs: batches at the instants of a Poisson process, each
        sent at once by one client, drawn evenly."""
        when = self.schedule.now + self._arriving.expovariate(self.shape.rate / self.shape.fan_out)
        if when <= until:
            self.schedule.at(when, lambda: self._arrive(until))

    def _arrive(self, until: float) -> None:
        client = self._clients[int(self._arriving.random() * len(self._clients))]
        for key in self.keys.batch(self.shape.fan_out):
            client.send(key)
        self.begin(until)


class _SentLately(LoadLimit):
    """The load of an upstream is how many requests it was sent of late."""

    def __init__(self) -> None:
        super().__init__(RouteSettings())
        self._sent: deque[tuple[float, LiveUpstream]] = deque()
        self._rate: Counter[LiveUpstream] = Counter()

    def forget(self, before: float) -> None:
        while self._sent and self._sent[0][0] < before:
            self._rate[self._sent.popleft()[1]] -= 1

    def add(self, now: float, upstream: LiveUpstream) -> None:
        self._sent.append((now, upstream))
        self._rate[upstream] += 1

    def room_of(self, upstream: LiveUpstream) -> float:
        return NONE

    def load_of(self, upstream: LiveUpstream) -> float:
        return self._rate[upstream]

    def threshold_of(self, upstream: LiveUpstream) -> float:
        return (len(self._sent) + 1) / len(self.split.eligible) * self.factor


class ByThroughput(ConsistentHash):
    """Goes by how many requests each upstream was sent of late, as if all took equally long."""

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        super().__init__(rng, clock, zone)
        self.limit = self._lately = _SentLately()

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        now = self._clock()
        self._lately.forget(now - WINDOW)
        upstream = super().pick(view, key, without)
        self._lately.add(now, upstream)
        return upstream


class _OneShare(LoadLimit):
    """Each upstream is expected to have as much as any other."""

    def part_of(self, upstream: LiveUpstream) -> float:
        return 1.0 / len(self.split.eligible)


class NaiveThreshold(ConsistentHash):
    """Holds each upstream against the mean of all, whichever rings it is in: then an upstream that serves
    its zone beside its share of the whole looks overloaded."""

    def __init__(self, rng: Random, clock: Callable[[], float], zone: str = "") -> None:
        super().__init__(rng, clock, zone)
        self.limit = _OneShare(RouteSettings())


def member(number: int) -> str:
    """`10.x.y.z:80`"""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:80"


def view(numbers: Iterable[int], zone_of: Callable[[int], str] = lambda number: "") -> tuple[LiveUpstream, ...]:
    """These upstreams as one client process sees them: what is counted of them is counted by it alone."""
    return tuple(LiveUpstream(Upstream.of(member(number), {"zone": zone_of(number)})) for number in numbers)


def distances(policies: Sequence[ConsistentHash]) -> Counter[int]:
    """How many requests so far passed over how many upstreams, of all these together."""
    return sum((policy.counts.distances for policy in policies), Counter[int]())


def walked(since: Counter[int]) -> float:
    """The part of these requests that passed over an upstream."""
    return 1 - since[0] / since.total() if since.total() else 0.0


def furthest(since: Counter[int], share: float) -> int:
    """Upstreams that this share of the requests did not pass over more than."""
    left = share * since.total()
    for distance in sorted(since):
        left -= since[distance]
        if left <= 0:
            return distance
    return 0
