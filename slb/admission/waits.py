"""The waits of the requests at one gate: how many queue, and how long each may."""

import asyncio
from collections import Counter
from collections.abc import Callable

from slb.admission.entry import Entry
from slb.control.lane_timing import LaneTiming
from slb.observe.metrics import Metrics


class Waits:
    """`queued`: how many requests queue, by route and class. `timed_out` is called with an entry that has queued
    for as long as its route allows, `impatient` with one that has waited too long for an answer of Redis."""

    def __init__(
        self,
        metrics: Metrics,
        timed_out: Callable[[Entry], None],
        impatient: Callable[[Entry], None],
    ) -> None:
        self.queued: Counter[tuple[str, str]] = Counter()
        self._metrics = metrics
        self._timed_out = timed_out
        self._impatient = impatient
        self._loop = asyncio.get_running_loop()

    def bound(self, entry: Entry, timing: LaneTiming) -> None:
        """Let it wait for its answer no longer than it may: in the queue, or for a Redis that is not silent."""
        patience = timing.settle + timing.silence
        wait, then = (entry.left, self._timed_out) if entry.turn else (patience, self._impatient)
        left = entry.arrived + wait - self._loop.time()
        entry.timer = self._loop.call_later(max(left, 0.0), then, entry)

    def queue(self, entry: Entry, position: int, timing: LaneTiming) -> None:
        """It queues, with so many before it. Nothing where it is answered, queues already, or may not queue."""
        if entry.waiter is None or entry.queues or entry.turn is None:
            return
        entry.queues = True
        if entry.position is None:
            entry.position = position
            self._metrics.queue.positions[entry.view].update(count=1, sum=position)
        self.queued[entry.view, entry.turn.priority] += 1
        if entry.timer is None:
            self.bound(entry, timing)

    def end(self, entry: Entry) -> float | None:
        """It waits no more. The seconds it has queued at this attempt; None where it did not queue."""
        entry.waiter = None
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        passed = self._loop.time() - entry.arrived
        entry.left -= passed
        if not entry.queues or entry.turn is None:
            return None
        entry.queues = False
        entry.waited += passed
        place = entry.view, entry.turn.priority
        self.queued[place] -= 1
        if not self.queued[place]:
            del self.queued[place]
        return passed
