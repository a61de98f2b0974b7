"""GPUs that were busy, and how long each is left alone. Pure: seconds are the caller's."""

from typing import NamedTuple

from slb.backoff import Backoff

_FIRST, _LONGEST = 1.0, 8.0
"""Seconds that a GPU is left alone at first, and at most: twice as long each time that it is found busy again."""


class _Busy(NamedTuple):
    until: float
    pauses: Backoff


class BusyGpus:
    """Those of one model, as one instance found them. However many jobs wait, a GPU that stays busy has no more
    calls in `_LONGEST` seconds than it has slots, of each instance; and a job waits so long at most for one that is
    free again. Kept per instance: a call that is refused costs less than to agree on it in Redis."""

    def __init__(self) -> None:
        self._found: dict[str, _Busy] = {}

    def found(self, member: str, now: float, asks: float = 0.0) -> float:
        """It has no time for a job, and `asks` for so many seconds. Calls that were on their way at the same time
        say the same, and count once. For how long it is left alone."""
        if self.is_left_alone(member, now):
            return self._found[member].until - now
        before = self._found.get(member)
        pauses = before.pauses if before is not None and now < before.until + _LONGEST else Backoff(_FIRST)
        pause = max(pauses.pause(now, _FIRST, _LONGEST, is_calm=False), min(asks, _LONGEST))
        self._found[member] = _Busy(now + pause, pauses)
        return pause

    def took(self, member: str) -> None:
        """It had time for one."""
        self._found.pop(member, None)

    def is_left_alone(self, member: str, now: float) -> bool:
        """Whether it is not asked for a slot yet."""
        return member in self._found and now < self._found[member].until

    def left_alone(self, now: float) -> set[str]:
        """All of those. What was found long ago is forgotten."""
        self._found = {each: busy for each, busy in self._found.items() if now < busy.until + _LONGEST}
        return {each for each, busy in self._found.items() if now < busy.until}
