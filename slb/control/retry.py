"""Whether and when a call to Redis that failed is tried again."""

from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from slb.control.connection import refusal_in

_PASSING = (AskError, ClusterDownError, NoScriptError, ReadOnlyError, TryAgainError)  # MOVED is an AskError
_PASSING_WORDS = ("BUSY", "DAMAGED")
"""How a refusal begins that another batch may not meet: of a long script, and of keys that are mended at once."""


def may_pass(error: Exception) -> bool:
    """Whether the same call may be served in a moment: the connection was cut, or a failover is under way."""
    if refusal_in(error):
        return False
    is_passing = isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)
    return is_passing or not isinstance(error, ResponseError)


FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5
"""Seconds, of what connects to Redis again, where nothing else is said."""


class Backoff:
    """How long to wait before the next attempt: not at all after a time of calm, and then twice as long each time.
    Seconds."""

    def __init__(self) -> None:
        self._next = 0.0
        self._calm_from = 0.0

    def pause(self, now: float, first: float, longest: float, is_calm: bool | None = None) -> float:
        """It has failed now. The pause before the next attempt; where it fails once more within `longest` of that,
        or where `is_calm` is False, the one after is longer."""
        if is_calm is None:
            is_calm = now > self._calm_from
        pause = 0.0 if is_calm else self._next
        self._next = min(max(first, 2 * pause), longest)
        self._calm_from = now + pause + longest
        return pause
