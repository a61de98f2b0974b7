"""Whose turn it is to try an upstream that comes back: one instance of the fleet does at a time. Pure: no I/O, no
clock.

An instance that wants the turn says so to all, itself included. Redis gives all of them the messages in one order,
so the first who has said so has it. It says so again while its request is under way. Where no message comes back,
Redis is away, and each instance goes by itself.
"""

from enum import Enum, auto

LASTS = 3.0
"""Seconds for which a turn that was told of is respected: an instance without requests keeps it no longer."""
_LONGEST = 30.0
"""Seconds after which a turn is not told of again: its request may hang for good."""


class _Whose(Enum):
    SOUGHT = auto()
    OURS = auto()
    THEIRS = auto()


class Turn:
    """That of one upstream, as one instance sees it; times are seconds of its own clock."""

    __slots__ = ("_began", "_until", "_whose")

    def __init__(self) -> None:
        self._whose = _Whose.THEIRS
        self._began = self._until = 0.0

    @property
    def is_elsewhere(self) -> bool:
        """Whether this instance is to send nothing there."""
        return self._whose is not _Whose.OURS

    def heard(self, is_own: bool, tries: bool, now: float) -> None:
        """An instance has said that it wants the turn, or has it still; `tries`: this one has a request there."""
        if is_own and self._whose is _Whose.SOUGHT:
            self._begin(now)
        elif not is_own and (self.is_elsewhere or (now >= self._until and not self._goes_on(tries, now))):
            self._whose, self._until = _Whose.THEIRS, now + LASTS

    def look(self, tries: bool, now: float) -> bool:
        """To be called now and then. Whether to say that this instance wants the turn, or has it still."""
        if self._whose is _Whose.OURS:
            return self._goes_on(tries, now)
        if now < self._until:
            return False
        if self._whose is _Whose.SOUGHT:
            self._begin(now)
            return False
        if tries:  # a request of before hangs there: another instance is to try
            return False
        self._whose, self._until = _Whose.SOUGHT, now + LASTS
        return True

    def _begin(self, now: float) -> None:
        self._whose, self._began, self._until = _Whose.OURS, now, now + LASTS

    def _goes_on(self, tries: bool, now: float) -> bool:
        return tries and now < self._began + _LONGEST
