"""A clock that a test sets, and requests that are served by it."""

from slb.balance.signals import Signals

START = 1000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def served(signals: Signals, clock: Clock, *durations: float, completed: bool = True) -> None:
    """One request after another."""
    for duration in durations:
        token = signals.begin()
        clock.now += duration
        signals.end(token, completed)
