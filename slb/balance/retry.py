"""What the proxy and the client library agree on about sending a request a second time."""

from random import Random

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods under which sending a request twice means the same as sending it once (RFC 9110, 9.2.2)."""

_BACKOFF = (0.002, 0.01)
"""Seconds: long enough that failures do not come back in step, short enough not to be noticed."""


def may_repeat(method: str, is_sent: bool, is_whole: bool) -> bool:
    """Whether a request that failed may be sent once more: its body is still here (`is_whole`), and sending twice
    means the same as sending once, by the method or because no connection had any of it (`is_sent` is False)."""
    return is_whole and (method in IDEMPOTENT or not is_sent)


def backoff(rng: Random) -> float:
    """Seconds until the next attempt, jittered."""
    return rng.uniform(*_BACKOFF)
