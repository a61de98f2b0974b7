"""Deadlines without a timer each: a hashed timing wheel (Varghese and Lauck 1987). Arming costs an assignment: an
entry stays in its slot, and its deadline is looked at again there; only an earlier one moves it."""

import asyncio
import math
from collections.abc import Callable

from slb.balance.pace import STOOD_STILL

TICK = 0.05
"""Seconds between two looks: the most by which a deadline is late."""
NEVER = math.inf
"""The deadline of what has none."""
_SLOTS = 2048


class Timed:
    """Something with one deadline. `expired` is called once per arming, from the event loop. Setting `due` to NEVER
    disarms it at no cost."""

    __slots__ = ("_looked_at", "_slot", "due")

    def __init__(self) -> None:
        self.due = NEVER
        self._slot = -1
        self._looked_at = NEVER

    def expired(self) -> None:
        """The deadline passed."""
        raise NotImplementedError


class Wheel:
    """`clock`: seconds. Started, it ticks every TICK seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots: list[set[Timed]] = [set() for _ in range(_SLOTS)]
        self._now = int(clock() / TICK)
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        return self._clock()

    def arm(self, item: Timed, due: float) -> None:
        """Call `item.expired()` at `due` (of the clock), unless it is armed anew or disarmed before."""
        item.due = due
        if due < item._looked_at:
            self._move(item, max(int(due / TICK), self._now) + 1)  # slots up to `_now` have had their turn

    def _move(self, item: Timed, slot: int) -> None:
        if item._slot >= 0:
            self._slots[item._slot % _SLOTS].discard(item)
        item._slot = slot
        item._looked_at = slot * TICK
        self._slots[slot % _SLOTS].add(item)

    def forget(self, item: Timed) -> None:
        """Disarm `item`; the wheel keeps no reference."""
        item.due = NEVER
        if item._slot >= 0:
            self._slots[item._slot % _SLOTS].discard(item)
            item._slot = -1
            item._looked_at = NEVER

    def tick(self) -> None:
        """Expire everything that is due."""
        now = self._clock()
        last = int(now / TICK)
        first = max(self._now + 1, last - _SLOTS + 1)
        self._now = last
        for slot in range(first, last + 1):
            if self._slots[slot % _SLOTS]:
                self._look_at(slot, now)

    def _look_at(self, slot: int, now: float) -> None:
        due: list[Timed] = []
        index = slot % _SLOTS  # a new set: an emptied one keeps the room of the most items that it ever had
        items, self._slots[index] = self._slots[index], set()
        for item in items:
            if item._slot > slot:
                self._slots[index].add(item)
                continue
            item._slot = -1
            item._looked_at = NEVER
            if item.due <= now:
                due.append(item)
            elif item.due < NEVER:
                self.arm(item, item.due)
        for item in due:
            if item.due <= now:
                item.due = NEVER
                try:
                    item.expired()
                except Exception as error:  # noqa: BLE001 -- the others are due too, and in no slot any more
                    report(error, f"the deadline of a {type(item).__name__} came to nothing")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(TICK, self._turn, loop, loop.time() + TICK)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Timers come before what has been received in the same turn of the loop."""
        now = loop.time()
        self._timer = loop.call_later(TICK, self._turn, loop, now + TICK)
        if now - due < STOOD_STILL:
            self.tick()


def report(error: Exception, what: str) -> None:
    """Log `what` and a traceback, as the event loop does for callbacks that fail: for loops over several items,
    which have to go on behind the one that failed."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
