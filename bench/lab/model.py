"""A fleet in simulated time: upstreams with caches, clients that decide by slb's own policy, keys that come; and
what a run is judged by."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import NamedTuple

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.ring import Ring
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings, Upstream

Choose = Callable[[bytes], LiveUpstream]  # from a key to the upstream that is to answer it
Answered = Callable[[bool], None]  # called with whether the cache had the key, when the reply is there

DRAWN_AT_ONCE = 4096
SLOTS = 32  # requests that one upstream works on at a time
HIT_SECONDS, MISS_SECONDS = 0.001, 0.100  # a reply from the cache, and one from the database


class Schedule:
    """What is still to happen, in order of time; equals in the order in which they were scheduled. Seconds. Time
    stands still while something happens, and leaps to what happens next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Have `action` called at `when`, which is not past."""
        heappush(self._due, (when, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let everything happen that is due at `until` or before, also what comes of it."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, action = heappop(due)
            action()
        self.now = until


class ZipfKeys:
    """Of `number` keys the k-th is drawn in proportion to 1 / k (Zipf's law)."""

    def __init__(self, number: int, rng: Random) -> None:
        self.keys = tuple(f"/products/{rank}".encode() for rank in range(1, number + 1))
        self._up_to = list(accumulate(math.pow(rank, -1.0) for rank in range(1, number + 1)))
        self._rng = rng
        self._drawn: list[bytes] = []

    def draw(self) -> bytes:
        if not self._drawn:
            self._drawn = self._rng.choices(self.keys, cum_weights=self._up_to, k=DRAWN_AT_ONCE)
        return self._drawn.pop()

    def batch(self, size: int) -> Iterator[bytes]:
        """So many that are not alike, as one question does not ask twice for a thing."""
        drawn: dict[bytes, None] = {}  # keeps their order, which a set would not from run to run
        while len(drawn) < size:
            drawn[self.draw()] = None
        return iter(drawn)


class Server:
    """A cache for the `room` keys that were requested last, in front of a slow database. Serves up to `slots`
    requests at a time, the others wait. A key is in the cache when its read is back: a request for it meanwhile
    reads it too."""

    def __init__(self, schedule: Schedule, room: int, slots: int = SLOTS) -> None:
        self.cache: OrderedDict[bytes, None] = OrderedDict()  # the first is forgotten first
        self.present = 0
        self._schedule, self._room, self._free = schedule, room, slots
        self._waiting: deque[tuple[bytes, Answered]] = deque()
        self._occupied = self._since = 0.0

    def keep(self, key: bytes) -> None:
        """It is the last to be forgotten."""
        self.cache[key] = None
        self.cache.move_to_end(key)
        if len(self.cache) > self._room:
            self.cache.popitem(last=False)

    def serve(self, key: bytes, answered: Answered) -> None:
        """Take a request now."""
        self._count(1)
        if self._free:
            self._start(key, answered)
        else:
            self._waiting.append((key, answered))

    def occupied(self) -> float:
        """Seconds of requests present up to now: one for one second is 1.0, two for one second are 2.0."""
        return self._occupied + self.present * (self._schedule.now - self._since)

    def _count(self, more: int) -> None:
        self._occupied = self.occupied()
        self._since = self._schedule.now
        self.present += more

    def _start(self, key: bytes, answered: Answered) -> None:
        self._free -= 1
        hit = key in self.cache
        if hit:
            self.keep(key)
        takes = HIT_SECONDS if hit else MISS_SECONDS
        self._schedule.at(self._schedule.now + takes, partial(self._finish, key, answered, hit))

    def _finish(self, key: bytes, answered: Answered, hit: bool) -> None:
        if not hit:
            self.keep(key)
        self._free += 1
        self._count(-1)
        if self._waiting:
            self._start(*self._waiting.popleft())
        answered(hit)


class Answers(NamedTuple):
    """Of a stretch of simulated time."""

    requests: int
    hits: int

    @property
    def reads(self) -> int:
        """Reads of the database: whatever a cache did not have."""
        return self.requests - self.hits

    @property
    def hit_rate(self) -> float:
        """1.0 where there was no request."""
        return self.hits / self.requests if self.requests else 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How big a fleet is. `rate` is keys a second over all clients, sent in batches of `fan_out`; there are `keys`
    different ones, and room for `cache` of them in each upstream."""

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
    """One run: everything that happens in it follows from `seed`. Upstreams are named by number; `rooms` is how
    many keys each one's cache, which is empty at first, has room for. Clients see their own requests only. Neither
    request nor reply takes any time on the way."""

    def __init__(self, shape: Shape, seed: int, rooms: Sequence[int] = ()) -> None:
        self.shape, self.seed, self.schedule = shape, seed, Schedule()
        self.rng, self._arriving = Random(f"{seed} choices"), Random(f"{seed} arrivals")
        self.keys = ZipfKeys(shape.keys, Random(f"{seed} keys"))
        each_room = enumerate(rooms or [shape.cache] * shape.upstreams)
        self.servers = {member(number): Server(self.schedule, room) for number, room in each_room}
        self._clients: list[Callable[[bytes], None]] = []
        self._requests, self._hits = Counter[int](), Counter[int]()

    def add_client(self, choose: Choose) -> None:
        """A client process that sends each request to the upstream that `choose` names."""

        def answered(handle: Handle, hit: bool) -> None:
            handle.release()
            self._requests[int(self.schedule.now)] += 1
            self._hits[int(self.schedule.now)] += hit

        def send(key: bytes) -> None:
            upstream = choose(key)
            self.servers[upstream.member].serve(key, partial(answered, Handle(upstream)))

        self._clients.append(send)

    def add_policy(
        self, upstreams: Iterable[LiveUpstream], settings: RouteSettings, number: int, zone: str = ""
    ) -> ConsistentHash:
        """A client process that goes by a policy of its own, its rings already built; its chances depend on its
        number and the fleet's seed."""
        eligible = tuple(sorted(upstreams, key=lambda upstream: upstream.member))
        policy = ConsistentHash(Random(f"{self.seed} client {number}"), lambda: self.schedule.now, zone)
        policy.follow(eligible, settings)
        for _ in policy.steps():  # slices: no request waits here
            pass
        picked_from = RouteView(eligible)
        self.add_client(lambda key: policy.pick(picked_from, key))
        return policy

    def warm(self, ring: Ring, requests: int) -> None:
        """Fill the caches by so many requests by this ring, in no time."""
        servers = {upstream: self.servers[upstream.member] for upstream in ring.upstreams}
        for _ in range(requests):
            key = self.keys.draw()
            servers[ring.pick(key)].keep(key)

    def begin(self, until: float) -> None:
        """Let requests come up to then, once `schedule` runs: batches at the instants of a Poisson process, each
        sent at once by one client, drawn evenly."""
        when = self.schedule.now + self._arriving.expovariate(self.shape.rate / self.shape.fan_out)
        if when <= until:
            self.schedule.at(when, lambda: self._arrive(until))

    def _arrive(self, until: float) -> None:
        send = self._clients[int(self._arriving.random() * len(self._clients))]
        for key in self.keys.batch(self.shape.fan_out):
            send(key)
        self.begin(until)

    def between(self, begin: int, end: int) -> Answers:
        """In all seconds from `begin` up to, without, `end`."""
        span = range(begin, end)
        return Answers(sum(self._requests[each] for each in span), sum(self._hits[each] for each in span))


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
