"""What makes a lane send a batch though nothing new is asked: its beat, a look at the queue, waiting releases."""

import asyncio
from collections.abc import Callable

from slb.control.epoch_tracker import EpochTracker
from slb.control.slots import Slots


class LaneTimers:
    """`wake` sends what is due. Seconds: `look`, between two looks while something waits in the queue; `linger`,
    how long a release may wait for an ask to go with, where there is no cap."""

    def __init__(
        self, slots: Slots, epochs: EpochTracker, look: float, linger: float, wake: Callable[[], None]
    ) -> None:
        self._slots = slots
        self._epochs = epochs
        self._look = look
        self._longest = linger
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._tick: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Wake for the beat, and more often while something waits in the queue."""
        pause = self._slots.builder.beat_due - self._loop.time()
        if self._slots.asks.queued or self._epochs.settling:
            self._slots.builder.look()
            pause = 0.0
        self._wake()
        self._tick = self._loop.call_later(max(pause, self._look), self.start)

    def stop(self) -> None:
        for timer in (self._tick, self._linger):
            if timer is not None:
                timer.cancel()

    def look_soon(self) -> None:
        """From now on there is something to look for."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = self._loop.call_later(self._look, self.start)

    def released(self) -> None:
        """Slots were given back: that is sent at once, or, where no request waits for them, soon."""
        if self._slots.views.is_capped:
            self._wake()
        elif self._linger is None:
            self._linger = self._loop.call_later(self._longest, self._release)

    def sent(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _release(self) -> None:
        self._linger = None
        self._slots.builder.hurry()
        self._wake()
