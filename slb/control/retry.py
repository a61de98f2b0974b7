"""Whether and when a call to Redis that failed is tried again."""

from redis.exceptions import AskError, ClusterDownError, NoScriptError, ReadOnlyError, ResponseError, TryAgainError

from slb.control.connection import refusal_in

_PASSING = (AskError, ClusterDownError, NoScriptError, ReadOnlyError, TryAgainError)  # MOVED is an AskError
_PASSING_WORDS = ("BUSY", "DAMAGED", "WRONGTYPE")
"""How a refusal begins that another batch may not meet: of a long script, and of keys that are mended at once."""


def may_pass(error: Exception) -> bool:
    """Whether the same call may be served in a moment: the connection was cut, or a failover is under way."""
    if refusal_in(error):
        return False
    is_passing = isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)
    return is_passing or not isinstance(error, ResponseError)


FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5
"""Seconds, of what connects to Redis again, where nothing else is given."""
