"""Timers to some ten microseconds. Those of event loops are rounded to milliseconds: too coarse for services of 2.

One timerfd (see timerfd_create(2)) stands for the earliest of them; it is called through libc, since Python has it
only from 3.13 on.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

ABSOLUTE = 1  # TFD_TIMER_ABSTIME
FIRED_BYTES = 8
NANOSECONDS = 1_000_000_000


class Timers:
    """Calls back at times of `time.monotonic`, in their order. Linux only; close it before its loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        made = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        self._descriptor = _checked(made)
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._loop = loop
        loop.add_reader(self._descriptor, self._fire)

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Times gone by are due at once, and still never called from within."""
        heappush(self._waiting, (when, next(self._numbers), callback))
        if self._waiting[0][0] == when:
            self._set(when)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _fire(self) -> None:
        os.read(self._descriptor, FIRED_BYTES)
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            heappop(self._waiting)[2]()
        if self._waiting:
            self._set(self._waiting[0][0])

    def _set(self, when: float) -> None:
        seconds, rest = divmod(max(1, int(when * NANOSECONDS)), NANOSECONDS)  # all zero would disarm it
        spec = (ctypes.c_long * 4)(0, 0, seconds, rest)  # struct itimerspec: no interval, the first expiry
        _checked(self._libc.timerfd_settime(self._descriptor, ABSOLUTE, spec, None))


def _checked(returned: int) -> int:
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned
