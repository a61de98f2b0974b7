"""A clock that a test sets, and requests that are served by it."""

from slb.balance.load_stats import LoadStats

START = 1000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def served(load_stats: LoadStats, clock: Clock, *durations: float, completed: bool = True) -> None:
    """One request after another."""
    for duration in durations:
        token = load_stats.begin()
        clock.now += duration
        load_stats.end(token, completed)
