"""The waits of the requests at one gate: how many queue, and how long each may."""

import asyncio
from collections import Counter
from collections.abc import Callable

from slb.admission.entry import Entry
from slb.control.lane_timing import LaneTiming
from slb.observe.metrics import Metrics


class Waits:
    """`queued`: how many requests queue, by route and class. `timed_out(entry)` is called after the longest time
    that the route allows, `impatient(entry)` where Redis has not answered in time."""

    def __init__(
        self, metrics: Metrics, timed_out: Callable[[Entry], None], impatient: Callable[[Entry], None]
    ) -> None:
        self.queued: Counter[tuple[str, str]] = Counter()
        self._entries: dict[tuple[str, str], dict[Entry, None]] = {}
        self._metrics = metrics
        self._timed_out = timed_out
        self._impatient = impatient
        self._loop = asyncio.get_running_loop()

    def bound(self, entry: Entry, timing: LaneTiming) -> None:
        """Set the timer: to the time it may queue, or where it may not, to the time Redis may be silent."""
        patience = timing.settle + timing.silence
        seconds, then = (entry.wait.left, self._timed_out) if entry.turn else (patience, self._impatient)
        left = entry.wait.arrived + seconds - self._loop.time()
        entry.wait.timer = self._loop.call_later(max(left, 0.0), then, entry)

    def queue(self, entry: Entry, position: int, timing: LaneTiming) -> None:
        """It queues, with `position` before it. Ignored where it is answered, queues already, or may not queue."""
        wait = entry.wait
        if entry.waiter is None or wait.queued or entry.turn is None:
            return
        wait.queued = True
        if wait.position is None:
            wait.position = position
            self._metrics.queue.positions[entry.view].update(count=1, sum=position)
        place = entry.view, entry.turn.priority
        self.queued[place] += 1
        self._entries.setdefault(place, {})[entry] = None
        if wait.timer is None:
            self.bound(entry, timing)

    def end(self, entry: Entry) -> float | None:
        """End its wait. Returns the seconds it has queued at this attempt; None where it did not queue."""
        entry.waiter = None
        wait = entry.wait
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None
        passed = self._loop.time() - wait.arrived
        wait.left -= passed
        if not wait.queued or entry.turn is None:
            return None
        wait.queued = False
        wait.waited += passed
        place = entry.view, entry.turn.priority
        self.queued[place] -= 1
        del self._entries[place][entry]
        if not self.queued[place]:
            del self.queued[place], self._entries[place]
        return passed

    def oldest(self, place: tuple[str, str]) -> float:
        """Seconds that the first of those that queue there has queued, at all its attempts."""
        first = next(iter(self._entries.get(place, ())), None)
        return first.wait.waited + self._loop.time() - first.wait.arrived if first is not None else 0.0
