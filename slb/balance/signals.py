"""How busy an upstream is, as far as this process can see: in flight, occupancy, latency, and what they come to.

Little's law: the average number of requests at an upstream is their rate times their duration. A count of those
open at one instant is 0 between two bursts, and cannot tell a thousand hits of a millisecond from ten misses of a
hundred. Occupancy, seconds of work per second over a short window, can. Weighing it by latency is Finagle's idea.
"""

from collections.abc import Callable, Iterable
from math import exp

BUCKETS = 5
BUCKET = 0.03
WINDOW = BUCKETS * BUCKET
"""Seconds: a little longer than a fast request's own timeout, so that what has just ended is still seen."""

MOST = 5.0
"""What latency can make of a load at most: no single slow upstream makes all the others look idle."""

MEMORY = 1.0
"""Seconds after which a latency counts 1/e. Longer than the window, for a hit and a miss differ by a hundred times:
what an upstream does usually is to be seen, not what it did last."""

MEMORY_REQUESTS = 8.0
"""The memory is as long as it takes to serve this many one by one where that is longer: of an upstream that takes
ten seconds for each, a second holds none at all, and whoever begins would look stuck at once."""

_FORGOTTEN = 1e-3
"""Of a request: what is left of it after seven times the memory. Less than that is no latency at all."""


class Signals:
    """Of one upstream. `clock`: seconds. `inflight`: requests in flight that were begun here. `completed`: how many
    were completed since the start, `seconds` what they took together, `squares` the sum of the squares of that.
    `watchers`: the pools in which it counts.
    """

    __slots__ = (
        "_busy",
        "_clock",
        "_count",
        "_last",
        "_lasting",
        "_latest",
        "_memory",
        "_open",
        "_sum",
        "_tokens",
        "completed",
        "seconds",
        "squares",
        "watchers",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, float] = {}
        self._lasting: dict[int, float] = {}
        self._tokens = 0
        self._busy = [0.0] * BUCKETS
        self._latest = int(clock() / BUCKET)
        self._sum = 0.0
        self._count = 0.0
        self._memory = MEMORY
        self._last = -1.0e9
        self.completed = 0
        self.seconds = 0.0
        self.squares = 0.0
        self.watchers: tuple[PoolLoad, ...] = ()

    @property
    def inflight(self) -> int:
        return len(self._open) + len(self._lasting)

    # -- what a handle does

    def begin(self) -> int:
        """A request begins; the token it ends with."""
        self._tokens += 1
        self._open[self._tokens] = self._clock()
        for pool in self.watchers:
            pool.inflight += 1
        return self._tokens

    def lasts(self, token: int) -> None:
        """It was answered, and goes on for as long as it likes, as a tunnel does: in flight, and no sign of being
        stuck. One that is idle for hours would keep every key away all that time."""
        self._lasting[token] = self._open.pop(token)

    def end(self, token: int, completed: bool) -> None:
        """It has ended. Where it failed or was abandoned it kept the upstream busy, but says nothing of how fast
        that is: one that fails at once is not fast."""
        began = self._open.pop(token) if token in self._open else self._lasting.pop(token)
        now = self._clock()
        for pool in self.watchers:
            pool.inflight -= 1
        self._add_busy(began, now)
        if completed:
            self._learn(now - began, now)

    def _learn(self, took: float, now: float) -> None:
        fade = exp((self._last - now) / self._memory)
        seconds = self._sum = self._sum * fade + took
        count = self._count = self._count * fade + 1.0
        remembered = MEMORY_REQUESTS * seconds / count
        self._memory = max(MEMORY, remembered)
        self._last = now
        self.completed += 1
        self.seconds += took
        self.squares += took * took

    def _add_busy(self, began: float, ended: float) -> None:
        """Count the time in the buckets it lies in; what lies before the window is over."""
        number = int(ended / BUCKET)
        if number != self._latest:
            self._slide(number)
        start = number * BUCKET
        if began >= start:  # as most do
            self._busy[number % BUCKETS] += ended - began
            return
        for each in range(number, number - BUCKETS, -1):
            start = each * BUCKET
            self._busy[each % BUCKETS] += max(0.0, ended - max(began, start))
            ended = min(ended, start)

    def _slide(self, number: int) -> None:
        """The bucket of this number is the latest."""
        for passed in range(max(self._latest + 1, number - BUCKETS + 1), number + 1):
            self._busy[passed % BUCKETS] = 0.0
        self._latest = max(self._latest, number)

    def _faded(self, now: float) -> float:
        return exp(min(0.0, self._last - now) / self._memory)

    # -- what is read

    def occupancy(self, now: float) -> float:
        """Seconds of work per second, of requests that have ended: one that is open is seen by `inflight`."""
        number = int(now / BUCKET)
        if number != self._latest:
            self._slide(number)
        return sum(self._busy) / WINDOW

    @property
    def latency(self) -> float | None:
        """Seconds: the mean, of late; None where nothing has been completed."""
        return self._sum / self._count if self._count else None

    def completions(self, now: float) -> tuple[float, float]:
        """Seconds, and how many requests took them together, both as far as they are remembered."""
        if not self._count:
            return 0.0, 0.0
        fade = self._faded(now)
        return self._sum * fade, self._count * fade

    def is_stuck(self, pool_latency: float, now: float) -> bool:
        """Whether it has had the oldest of its requests for longer than it should take, and has not finished any
        other meanwhile. What its latency was before says nothing then: a warm upstream may freeze."""
        if not self._open or now - self._last < WINDOW:
            return False
        since = now - max(WINDOW, 2.0 * pool_latency)
        return self._last < since and next(iter(self._open.values())) < since

    def effective_load(self, pool_latency: float, now: float) -> float:
        """Concurrency, weighed by latency against that of the pool (seconds; 0.0 where it has none)."""
        load = max(len(self._open) + len(self._lasting), self.occupancy(now))
        if not load:
            return 0.0
        if self.is_stuck(pool_latency, now):
            return load * MOST
        if not self._count or pool_latency <= 0.0:
            return load
        return load * min(self._sum / self._count / pool_latency, MOST)


class PoolLoad:
    """Of the upstreams of one route together. It is read at every pick and taken anew every few milliseconds only:
    `latency` (seconds; 0.0 where nothing has been completed of late) and `total`, the sum of the effective loads.

    `inflight` is kept by the signals themselves: what is begun between two looks counts at once, else a burst would
    meet the threshold of the idle pool before it.
    """

    __slots__ = ("_seen", "_total", "inflight", "latency", "signals")

    def __init__(self) -> None:
        self.signals: tuple[Signals, ...] = ()
        self.inflight = 0
        self.latency = 0.0
        self._total = 0.0
        self._seen = 0

    def watch(self, signals: Iterable[Signals]) -> None:
        """These are the upstreams' from now on."""
        for each in self.signals:
            each.watchers = tuple(pool for pool in each.watchers if pool is not self)
        self.signals = tuple(signals)
        for each in self.signals:
            each.watchers = (*each.watchers, self)
        self.inflight = self._seen = sum(each.inflight for each in self.signals)

    def look(self, now: float) -> None:
        """Take latency and total anew."""
        self.latency = mean_latency(self.signals, now) or 0.0
        self._total = sum(each.effective_load(self.latency, now) for each in self.signals)
        self._seen = self.inflight

    @property
    def total(self) -> float:
        """With what has begun or ended since the last look, each counted as one."""
        return max(0.0, self._total + self.inflight - self._seen)


def mean_latency(signals: Iterable[Signals], now: float) -> float | None:
    """Seconds a request took, of all completed of late; None where there are none."""
    seconds = count = 0.0
    for each in signals:
        took, completed = each.completions(now)
        seconds += took
        count += completed
    return seconds / count if count > _FORGOTTEN else None
