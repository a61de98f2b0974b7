"""How long a model's slots are held: two percentiles that follow what is seen, in whole milliseconds.

Each sample moves a percentile a little: up by p for one above it, down by 1 - p for one below, so that it rests
where a share p of the samples is below. `control/lua/quota.lua` has the same steps.
"""

from collections.abc import Callable

_SHORT_BACKOFF = 250
"""Milliseconds, where nothing is known yet: durations are not guessed."""


class Holding:
    """`long`: nine in ten tasks are done by then; `middle`: half of them. 0 before the first has ended."""

    def __init__(self) -> None:
        self.long = 0
        self.middle = 0

    def saw(self, held: int) -> None:
        """A task has ended after so many milliseconds."""
        held = max(1, held)
        if self.long == 0:
            self.long = self.middle = held
            return
        small, large = max(1, self.long // 64), max(1, self.middle // 32)
        self.long = max(1, self.long + (9 * small if held > self.long else -small))
        self.middle = max(1, self.middle + (large if held > self.middle else -large))

    def wait(self, place: int, slots: int, in_flight: int, started: Callable[[int], int], now: int) -> int:
        """Milliseconds until a slot frees for who has `place` others before it, with nine chances in ten.

        `started(n)`: when the task that is the n-th oldest of those `in_flight` was admitted. Those that hold a
        slot are expected to end one after another, as they began; where durations scatter, more time is left.
        """
        if in_flight == 0:
            return (self.long or _SHORT_BACKOFF) * (1 + place // slots)
        begun = started(place % in_flight)
        if self.long == 0:
            return max(_SHORT_BACKOFF, now - begun)
        due = begun + self.long * (1 + place // in_flight) - now
        scattered = (place + 1) * 2 * max(0, self.long - self.middle) // slots
        if due <= 0:  # longer than expected already: as long again, or as the next of so many slots takes
            return max(-due, scattered, (place + 1) * self.long // (2 * slots), 1)
        return max(due, scattered)
