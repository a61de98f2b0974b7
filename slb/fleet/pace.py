"""How often the view works, so that it costs no more than a share of a core, whatever the size of the fleet."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from slb.control.slices import Slices

PERIOD = 1.0
"""Seconds between two rounds, where these are cheap."""
_LONGEST = 15.0
_SHARE = 0.009
"""Of a core: with what cannot be measured here (the reading of a socket, say), 1 % at most."""
_SMOOTHING = 0.3


class Pace:
    """`round` is called once for each round, with the CPU seconds that it took besides what was `counted`."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._counted = 0.0

    def slices(self) -> Slices:
        """For work of a round: measured in CPU time of this thread, since a busy machine stretches all other."""
        return Slices(time.thread_time)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is done in one turn of the event loop."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._counted += time.thread_time() - began

    def round(self, *worked: Slices) -> None:
        cost = self._counted + sum(each.worked for each in worked)
        self._counted = 0.0
        self._cost += _SMOOTHING * (cost - self._cost)

    @property
    def period(self) -> float:
        """Seconds from one round to the next."""
        return min(max(PERIOD, self._cost / _SHARE), _LONGEST)
