"""Events that a stranger can cause at will: the log has them now and then, with how many there were."""

from collections.abc import Callable


class Seldom:
    """`clock` gives seconds. The first event is told of, and then what came in at least `period` seconds."""

    def __init__(self, clock: Callable[[], float], period: float) -> None:
        self._clock = clock
        self._period = period
        self._untold = 0
        self._next = clock()

    def count(self) -> int:
        """One more. How many to tell of now, those before it included that were not told of; 0 for none."""
        self._untold += 1
        now = self._clock()
        if now < self._next:
            return 0
        self._next = now + self._period
        untold, self._untold = self._untold, 0
        return untold
