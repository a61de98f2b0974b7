"""A simulated upstream: a cache in front of a slow database."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.lab.cache import LruCache
from bench.lab.events import Schedule

Answered = Callable[[bool], None]
"""Called with whether the cache had it, when the reply is there."""


class Work(NamedTuple):
    """How long what takes, in seconds; `slots` is how many requests one upstream works on at a time."""

    hit: float = 0.001
    miss: float = 0.100
    slots: int = 32


USUAL_WORK = Work()
"""1 ms from the cache, 100 ms from the database."""


class Server:
    """Serves up to `work.slots` requests at a time, the others wait their turn. A key is in the cache when its read
    is back: whoever asks for it meanwhile reads it too.
    """

    def __init__(self, member: str, schedule: Schedule, cache: LruCache, work: Work) -> None:
        self.member = member
        self.cache = cache
        self.present = 0
        self.answered = 0
        self.reads = 0
        self._schedule = schedule
        self._work = work
        self._serving = 0
        self._waiting: deque[tuple[bytes, Answered]] = deque()
        self._occupied = 0.0
        self._since = 0.0

    def serve(self, key: bytes, answered: Answered) -> None:
        """Take a request now."""
        self._count(1)
        if self._serving < self._work.slots:
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
        self.reads += not hit
        takes = self._work.hit if hit else self._work.miss
        self._schedule.at(self._schedule.now + takes, partial(self._finish, key, answered, hit))

    def _finish(self, key: bytes, answered: Answered, hit: bool) -> None:
        if not hit:
            self.cache.put(key)
        self._serving -= 1
        self.answered += 1
        self._count(-1)
        if self._waiting:
            self._start(*self._waiting.popleft())
        answered(hit)
