"""Whose turn it is to try an upstream that comes back: one instance of the fleet does at a time. Pure: no I/O, no
clock.

An instance that wants the turn says so to all, itself included. Redis gives all of them the messages in one order,
so the first who has said so has it. It says so again and again, and has the turn until its request there has ended.
One that has requests asks the holder for the turn, and a holder without requests gives it: at once where it has
had none, else when it is asked twice by the same one before its own next request. Where requests come one by one to
one instance after the other, the turn so stays where it is. Where no message comes back, Redis is away, and each
instance goes by itself.
"""

from enum import Enum, auto

LASTS = 3.0
"""Seconds for which a turn that was told of is respected: the turn of an instance that died lasts no longer."""
_LONGEST = 30.0
"""Seconds after which a turn is not told of again: its request may hang for good."""


class _Whose(Enum):
    SOUGHT = auto()
    OURS = auto()
    THEIRS = auto()


class Say(Enum):
    """What an instance is to tell all others."""

    NOTHING = auto()
    OURS = auto()
    """That it wants a turn that nobody has, or has it still."""
    WANTED = auto()
    """That it has requests, and the turn is another's."""


class Turn:
    """That of one upstream, as one instance sees it; times are seconds of its own clock. `tries`: this instance has
    a request there; `has_requests`: some have come since the last look that might go there."""

    __slots__ = ("_askers", "_began", "_has_requests", "_until", "_whose")

    def __init__(self) -> None:
        self._whose = _Whose.THEIRS
        self._began = self._until = 0.0
        self._has_requests = False
        self._askers: set[int] = set()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this instance is to send nothing there."""
        return self._whose is not _Whose.OURS

    def heard(self, is_own: bool, tries: bool, now: float) -> None:
        """An instance has said that it wants the turn, or has it still."""
        if is_own and self._whose is _Whose.SOUGHT:
            self._begin(now)
        elif not is_own and (self.is_elsewhere or (now >= self._until and not (tries and self._goes_on(now)))):
            self._theirs(now)

    def wanted(self, number: int, tries: bool, has_requests: bool, now: float) -> bool:
        """The instance of this number wants the turn, and has requests. Whether it is given to that one."""
        if self.is_elsewhere or tries:
            return False
        if has_requests:
            self._requests_came()
        if self._has_requests and number not in self._askers:
            self._askers.add(number)
            return False
        self._theirs(now)
        return True

    def given(self, is_own: bool, now: float) -> None:
        """The holder has given the turn, to this instance where that `is_own`."""
        if is_own:
            self._begin(now)
            self._requests_came()  # for which it has asked
        else:
            self._theirs(now)

    def look(self, tries: bool, has_requests: bool, now: float) -> Say:
        """To be called now and then."""
        if self._whose is _Whose.OURS:
            if has_requests:
                self._requests_came()
            if not tries:
                self._began = now
            return Say.OURS if self._goes_on(now) else Say.NOTHING
        if now < self._until:
            return Say.WANTED if has_requests and self._whose is _Whose.THEIRS else Say.NOTHING
        if self._whose is _Whose.SOUGHT:
            self._begin(now)
            return Say.NOTHING
        if tries:  # a request of before hangs there: another instance is to try
            return Say.NOTHING
        self._whose, self._until = _Whose.SOUGHT, now + LASTS
        return Say.OURS

    def _begin(self, now: float) -> None:
        self._whose, self._began, self._until = _Whose.OURS, now, now + LASTS
        self._has_requests = False
        self._askers.clear()

    def _requests_came(self) -> None:
        self._has_requests = True
        self._askers.clear()

    def _theirs(self, now: float) -> None:
        self._whose, self._until = _Whose.THEIRS, now + LASTS

    def _goes_on(self, now: float) -> bool:
        return now < self._began + _LONGEST
