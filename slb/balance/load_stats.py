"""How busy an upstream is, as far as this process can see: in flight, occupancy, latency, and what they come to.

Little's law: the average number of requests at an upstream is their rate times their duration. A count of those
open at one instant is 0 between two bursts. Occupancy, seconds of work per second over a short window, is that
average, of requests that have ended. It is the same, 1, for a thousand hits of 1 ms a second and for ten misses of
100 ms: latency tells these apart, and weighing the load by it is Finagle's idea.
"""

from collections.abc import Callable, Iterable
from itertools import takewhile
from math import inf

from slb.balance.latency import Latency

BUCKETS = 5
BUCKET = 0.03
WINDOW = BUCKETS * BUCKET
"""Seconds: a little longer than a fast request's own timeout, so that what has just ended is still seen."""

MOST = 5.0
"""What latency can make of a load at most: no single slow upstream makes all the others look idle."""

NONE = -1.0
"""Room where there is none for certain."""

_ENDED = 64
"""Requests that have ended and wait to be taken up, at most."""

_UNSEEN = 0.0, 1.0, 1.0
"""Occupancy, weight and room of an upstream that is not watched."""

_LATE = 2.0
"""Latencies after which a request is late."""

_SLOW = 2.0
"""Weight of an upstream that is too slow for a batch: one that misses its cache is to be relieved."""

_FORGOTTEN = 1e-3
"""Of a request: what is left of it after seven times the memory. Less than that is no latency at all."""


class LoadStats:
    """Of one upstream. `clock`: seconds. `inflight`: requests in flight that were begun here. `watchers`: the pools
    in which it counts. Results are added many at once, when a figure is read: one by one they cost four times as
    much."""

    __slots__ = (
        "_began",
        "_busy",
        "_clock",
        "_ended",
        "_lasting",
        "_latency",
        "_latest",
        "_open",
        "_progressed",
        "_tokens",
        "inflight",
        "watchers",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, float] = {}
        self._lasting: dict[int, float] = {}
        self._ended: list[tuple[float, float, bool]] = []
        self._tokens = 0
        self.inflight = 0
        self._busy = [0.0] * BUCKETS
        self._latest = int(clock() / BUCKET)
        self._latency = Latency()
        self._progressed = self._began = -1.0e9
        self.watchers: tuple[PoolLoad, ...] = ()

    # -- what a handle does

    def begin(self) -> int:
        """A request begins. Returns the token it ends with."""
        token = self._tokens = self._tokens + 1
        self._open[token] = self._began = self._clock()
        self.inflight += 1
        for pool in self.watchers:
            pool.inflight += 1
        return token

    def lasts(self, token: int) -> None:
        """It was answered, and may stay open without a limit, as a tunnel does: it is in flight, and no sign of
        being stuck. Its latency is the time until now."""
        began = self._open.pop(token, None)
        if began is not None:
            self._lasting[token] = began
            self._take_up()
            now = self._clock()
            self._latency.learn(now - began, now)

    def waits(self, token: int) -> None:
        """The client is still sending: the request is in flight, and no sign of being stuck."""
        began = self._open.pop(token, None)
        if began is not None:
            self._lasting[token] = began

    def goes_on(self, token: int) -> None:
        """After `waits`: the upstream has all of the request; its latency counts from now on."""
        if self._lasting.pop(token, None) is not None:
            self._open[token] = self._clock()

    def progresses(self) -> None:
        """Part of an answer has come: the upstream is not frozen."""
        self._progressed = self._clock()

    def end(self, token: int, completed: bool) -> None:
        """It has ended. Not `completed`: it counts for occupancy but not for latency, since an upstream that fails
        at once is not fast."""
        began = self._open.pop(token, None)
        if began is None:
            began, completed = self._lasting.pop(token), False
        self.inflight -= 1
        for pool in self.watchers:
            pool.inflight -= 1
        self._ended.append((began, self._clock(), completed))
        if len(self._ended) >= _ENDED:
            self._take_up()

    # -- what has ended is taken up

    def _take_up(self) -> None:
        ended, self._ended = self._ended, []
        learn = self._latency.learn
        for began, at, completed in ended:
            number = int(at / BUCKET)
            if number != self._latest:
                self._slide(number)
            if began >= number * BUCKET:  # as most do
                self._busy[number % BUCKETS] += at - began
            else:
                self._add_busy(began, at, number)
            if completed:
                learn(at - began, at)

    def _add_busy(self, began: float, ended: float, number: int) -> None:
        """Count the time in the buckets it lies in, the last of which is `number`."""
        for each in range(number, number - BUCKETS, -1):
            start = each * BUCKET
            self._busy[each % BUCKETS] += max(0.0, ended - max(began, start))
            ended = min(ended, start)

    def _slide(self, number: int) -> None:
        """The bucket of this number is the latest."""
        for passed in range(max(self._latest + 1, number - BUCKETS + 1), number + 1):
            self._busy[passed % BUCKETS] = 0.0
        self._latest = max(self._latest, number)

    # -- what is read

    def occupancy(self, now: float) -> float:
        """Seconds of work per second, of requests that have ended: one that is open is seen by `inflight`."""
        if self._ended:
            self._take_up()
        number = int(now / BUCKET)
        if number != self._latest:
            self._slide(number)
        return sum(self._busy) / WINDOW

    @property
    def latency(self) -> float | None:
        """Seconds: the mean, of late; None where nothing has been completed."""
        if self._ended:
            self._take_up()
        return self._latency.sum / self._latency.count if self._latency.count else None

    def lately(self, now: float) -> tuple[float, float, float]:
        """Its occupancy; and lately, seconds of requests and how many."""
        return self.occupancy(now), *self._latency.lately(now)

    def completed(self) -> tuple[int, float, float]:
        """Since the start: how many, their seconds, and the sum of the squares."""
        if self._ended:
            self._take_up()
        return self._latency.completed, self._latency.seconds, self._latency.squares

    def is_stuck(self, pool_latency: float, now: float) -> bool:
        """Whether its oldest request takes longer than it should, and none other has ended or progressed meanwhile.
        By the pool's latency, not its own: a warm upstream may freeze."""
        if self._ended:
            self._take_up()
        last = self._latency.last
        if not self._open or now - last < WINDOW:
            return False
        since = now - _patience(pool_latency)
        return last < since and next(iter(self._open.values())) < since and self._progressed < since

    def weight(self, pool_latency: float, now: float) -> float:
        """The factor of its load, by its latency against the pool's (seconds; 0.0 where that has none)."""
        if self._open and self.is_stuck(pool_latency, now):
            return MOST
        latency = self._latency
        if not latency.count or pool_latency <= 0.0:
            return 1.0
        return min(latency.sum / latency.count / pool_latency, MOST)

    def room(self, occupancy: float, weight: float, pool_latency: float, now: float) -> float:
        """How many may be in flight here for certain when one more begins: a load of 1 is never too much, and one
        more is not where a probe is due. NONE where its occupancy alone is too much."""
        room = NONE if occupancy * weight > 1.0 else 1.0 / weight if weight else inf
        return self.inflight if self.inflight > room and self._is_probe_due(pool_latency, now) else room

    def is_soon_done(self, pool_latency: float) -> bool:
        """Whether all that is in flight here ends within a window, by its own latency, and none of it is late."""
        latency = self.latency or pool_latency
        if not latency or self.inflight * latency > WINDOW:
            return False
        oldest = next(iter(self._open.values()), inf)
        return self._clock() - oldest <= _LATE * latency

    def _is_probe_due(self, pool_latency: float, now: float) -> bool:
        """Whether one request more is due where none has ended of late. Where one is passed over, its figures stay
        as they are unless it gets one; a single long request would keep all others away. Those that it does not
        answer come later and later."""
        last = self._latency.last
        patience = _patience(pool_latency)
        unanswered = sum(1 for _ in takewhile((last + patience).__lt__, reversed(self._open.values())))
        return now - max(self._began, last) >= patience * max(1, unanswered)

    def effective_load(self, pool_latency: float, now: float) -> float:
        """Concurrency times weight."""
        return max(self.inflight, self.occupancy(now)) * self.weight(pool_latency, now)


def _patience(pool_latency: float) -> float:
    """Seconds in which something should end at an upstream that has requests."""
    return max(WINDOW, 2.0 * pool_latency)


class PoolLoad:
    """Of the upstreams of one route together. It is read at every pick, and looked at every few milliseconds only:
    `latency` (seconds; 0.0 where nothing has been completed of late), the occupancy, weight and room of each, and
    `total`, the sum of the effective loads.

    `inflight` is updated by each `LoadStats`: what is begun between two looks counts at once, of the pool and of
    each upstream, else a burst would meet the threshold of the idle pool before it.
    """

    __slots__ = ("_seen", "_seen_inflight", "_total", "inflight", "latency", "load_stats")

    def __init__(self) -> None:
        self.load_stats: tuple[LoadStats, ...] = ()
        self.inflight = 0
        self.latency = 0.0
        self._seen: dict[LoadStats, tuple[float, float, float]] = {}
        self._total = 0.0
        self._seen_inflight = 0

    def watch(self, load_stats: Iterable[LoadStats]) -> None:
        """Set the upstreams of the pool."""
        for each in self.load_stats:
            each.watchers = tuple(pool for pool in each.watchers if pool is not self)
        self.load_stats = tuple(load_stats)
        for each in self.load_stats:
            each.watchers = (*each.watchers, self)
        self.inflight = self._seen_inflight = sum(each.inflight for each in self.load_stats)

    def look(self, now: float) -> None:
        """Compute all figures again."""
        occupancies: list[float] = []
        seconds = count = total = 0.0
        for each in self.load_stats:
            occupancy, took, completed = each.lately(now)
            occupancies.append(occupancy)
            seconds += took
            count += completed
        latency = self.latency = seconds / count if count > _FORGOTTEN else 0.0
        seen: dict[LoadStats, tuple[float, float, float]] = {}
        for each, occupancy in zip(self.load_stats, occupancies, strict=True):
            weight = each.weight(latency, now)
            seen[each] = occupancy, weight, each.room(occupancy, weight, latency, now)
            total += max(occupancy, each.inflight) * weight
        self._seen, self._total, self._seen_inflight = seen, total, self.inflight

    def load_of(self, load_stats: LoadStats) -> float:
        """The effective load, by the weight it had at the last look."""
        occupancy, weight, _ = self._seen.get(load_stats, _UNSEEN)
        return max(load_stats.inflight, occupancy) * weight

    def room_of(self, load_stats: LoadStats) -> float:
        """As `LoadStats.room`, by the last look."""
        return self._seen.get(load_stats, _UNSEEN)[2]

    def takes_batch(self, load_stats: LoadStats) -> bool:
        """Whether this upstream was idle, is not slow, and is soon done with what is in flight: a batch that comes
        at one instant is gone before it weighs, and its keys would miss elsewhere."""
        _, weight, room = self._seen.get(load_stats, _UNSEEN)
        return room != NONE and weight <= _SLOW and load_stats.is_soon_done(self.latency)

    def spare(self, load_stats: LoadStats) -> float:
        """The load it may have above its share: one request; 0.0 where it is stuck, or as slow as that."""
        return 1.0 if self._seen.get(load_stats, _UNSEEN)[1] < MOST else 0.0

    @property
    def total(self) -> float:
        """With what has begun or ended since the last look, each counted as one."""
        return max(0.0, self._total + self.inflight - self._seen_inflight)
