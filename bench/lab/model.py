"""Simulated time, and what lives in it: keys, caches, upstreams, clients; and what a run is judged by."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import NamedTuple

from slb.balance.upstream import Handle, LiveUpstream

Choose = Callable[[bytes], LiveUpstream]
"""From a key to the upstream that is to answer it."""

Answered = Callable[[bool], None]
"""Called with whether the cache had the key, when the reply is there."""

DRAWN_AT_ONCE = 4096
SLOTS = 32
"""Requests that one upstream works on at a time."""

HIT_SECONDS, MISS_SECONDS = 0.001, 0.100
"""A reply from the cache, and one from the database."""


class Schedule:
    """What is still to happen, in order of time; equals in the order in which they were scheduled. Seconds. Time
    stands still while something happens, and leaps to what happens next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def clock(self) -> float:
        return self.now

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Have `action` called at `when`. Raises ValueError for what is past."""
        if when < self.now:
            raise ValueError(f"{when} is before {self.now}")
        heappush(self._due, (when, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let everything happen that is due at `until` or before, also what comes of it."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, action = heappop(due)
            action()
        self.now = until


class ZipfKeys:
    """Of `number` keys the k-th is drawn in proportion to 1 / k ** `exponent` (Zipf's law)."""

    def __init__(self, number: int, exponent: float, rng: Random) -> None:
        self.keys = tuple(f"/products/{rank}".encode() for rank in range(1, number + 1))
        self._up_to = list(accumulate(math.pow(rank, -exponent) for rank in range(1, number + 1)))
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


class LruCache:
    """The `capacity` keys that were requested last. It holds no values: only whether there is one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[bytes]:
        """In the order in which they will be forgotten."""
        return iter(self._keys)

    def get(self, key: bytes) -> bool:
        """Whether it is here; then it is the last to be forgotten."""
        if key not in self._keys:
            return False
        self._keys.move_to_end(key)
        return True

    def put(self, key: bytes) -> None:
        """Keep it, as the last to be forgotten."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._capacity:
            self._keys.popitem(last=False)


class Server:
    """A cache in front of a slow database. Serves up to `slots` requests at a time, the others wait. A key is in
    the cache when its read is back: a request for it meanwhile reads it too."""

    def __init__(self, schedule: Schedule, cache: LruCache, slots: int = SLOTS) -> None:
        self.cache = cache
        self.present = 0
        self._schedule = schedule
        self._slots = slots
        self._serving = 0
        self._waiting: deque[tuple[bytes, Answered]] = deque()
        self._occupied = 0.0
        self._since = 0.0

    def serve(self, key: bytes, answered: Answered) -> None:
        """Take a request now."""
        self._count(1)
        if self._serving < self._slots:
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
        self._serving += 1
        hit = self.cache.get(key)
        takes = HIT_SECONDS if hit else MISS_SECONDS
        self._schedule.at(self._schedule.now + takes, partial(self._finish, key, answered, hit))

    def _finish(self, key: bytes, answered: Answered, hit: bool) -> None:
        if not hit:
            self.cache.put(key)
        self._serving -= 1
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


class Measures:
    """Filled by the clients of a run: one call for each reply."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._hits: Counter[int] = Counter()

    def answered(self, now: float, hit: bool) -> None:
        self._requests[int(now)] += 1
        self._hits[int(now)] += hit

    def between(self, begin: int, end: int) -> Answers:
        """In all seconds from `begin` up to, without, `end`."""
        span = range(begin, end)
        return Answers(sum(self._requests[each] for each in span), sum(self._hits[each] for each in span))


class Client:
    """A client process, which sees its own requests only. It sends every request to the server that `choose` names.
    Neither request nor reply takes any time on the way."""

    def __init__(
        self, choose: Choose, servers: Mapping[str, Server], schedule: Schedule, measures: Measures
    ) -> None:
        self._choose = choose
        self._servers = servers
        self._schedule = schedule
        self._measures = measures

    def send(self, key: bytes) -> None:
        upstream = self._choose(key)
        self._servers[upstream.member].serve(key, partial(self._answered, Handle(upstream)))

    def _answered(self, handle: Handle, hit: bool) -> None:
        handle.release()
        self._measures.answered(self._schedule.now, hit)
