"""How long an event loop is held: a timer every millisecond, and how late it fires."""

import asyncio
import time
from dataclasses import dataclass

BEAT_SECONDS = 0.001


@dataclass(frozen=True)
class Held:
    """The longest the loop was held in a stretch of time, in milliseconds.

    `wall` is how late a beat came; on a busy machine that is also the time in which this process did not run.
    `cpu` is the most that the loop's own thread worked between two beats: what is slb's doing.
    """

    wall: float
    cpu: float


class Heartbeat:
    """Beats on the running loop until stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = Held(0.0, 0.0)
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def take(self) -> Held:
        """The longest since it was last asked."""
        longest, self._longest = self._longest, Held(0.0, 0.0)
        return longest

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due = time.perf_counter() + BEAT_SECONDS
        self._worked = time.thread_time()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        late = (time.perf_counter() - self._due) * 1e3
        worked = (time.thread_time() - self._worked) * 1e3
        self._longest = Held(max(self._longest.wall, late), max(self._longest.cpu, worked))
        self._wait()
