"""The rules of the proxy and the client library for sending a request again."""

from collections.abc import Callable
from random import Random

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""RFC 9110, 9.2.2."""

_BACKOFF = (0.002, 0.01)
"""Seconds."""

_SHARE = 0.2
_FLOOR = 3
_WINDOW = 10.0


def may_repeat(method: str, is_sent: bool, is_whole: bool) -> bool:
    """Whether a failed request may be sent again: its body is still here (`is_whole`), and the method is idempotent
    or no connection had any of it (`is_sent` is False)."""
    return is_whole and (method in IDEMPOTENT or not is_sent)


def backoff(rng: Random) -> float:
    """Seconds until the next attempt, jittered."""
    return rng.uniform(*_BACKOFF)


class RetryBudget:
    """Retries of one route: at most a fifth of its requests of the last 10 to 20 seconds, and three in any case.

    In an outage every request fails, and a retry for each would double the load on what is left (SRE book, ch. 22).
    """

    def __init__(self, since: float) -> None:
        """`since`: when requests began to be counted, in seconds."""
        self._since = since
        self._requests_before = (0.0, 0.0)
        self._retries = (0, 0)

    def take(self, requests: int, now: float) -> bool:
        """Whether one more may be sent. `requests`: how many the route has had since `since`; `now`: seconds."""
        if now - self._since > _WINDOW:
            self._move_on(requests, now)
        recent = requests - self._requests_before[0]
        if sum(self._retries) >= max(_FLOOR, _SHARE * recent):
            return False
        self._retries = (self._retries[0], self._retries[1] + 1)
        return True

    def _move_on(self, requests: int, now: float) -> None:
        """Begin a new window. After a long time without failures the last 10 s count as an average of that time."""
        passed = now - self._since
        if passed > 2 * _WINDOW:
            lately = (requests - self._requests_before[1]) * _WINDOW / passed
            self._requests_before, self._retries = (requests - lately, requests), (0, 0)
        else:
            self._requests_before, self._retries = (self._requests_before[1], requests), (self._retries[1], 0)
        self._since = now


class RetryBudgets:
    """Those of all routes. `finished`: route path -> how many of its requests have ended."""

    def __init__(self, finished: Callable[[str], int], clock: Callable[[], float]) -> None:
        self._finished = finished
        self._clock = clock
        self._began = clock()
        self._budgets: dict[str, RetryBudget] = {}

    def forget(self, route: str) -> None:
        self._budgets.pop(route, None)

    def afford(self, route: str) -> bool:
        """Take one retry from the budget of the route of this path; False where none is left."""
        budget = self._budgets.get(route) or self._budgets.setdefault(route, RetryBudget(self._began))
        return budget.take(self._finished(route), self._clock())
