"""The rules of the proxy and the client library for sending a request again."""

from random import Random

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""RFC 9110, 9.2.2."""

_BACKOFF = (0.002, 0.01)
"""Seconds."""


def may_repeat(method: str, is_sent: bool, is_whole: bool) -> bool:
    """Whether a failed request may be sent again: its body is still here (`is_whole`), and the method is idempotent
    or no connection had any of it (`is_sent` is False)."""
    return is_whole and (method in IDEMPOTENT or not is_sent)


def backoff(rng: Random) -> float:
    """Seconds until the next attempt, jittered."""
    return rng.uniform(*_BACKOFF)
