"""Whether a request may be sent again, and how long to wait before it is."""

from collections.abc import Callable
from random import Random

from slb.balance.eligible import untried
from slb.balance.order import second_choice
from slb.balance.retry import IDEMPOTENT, backoff
from slb.balance.upstream import LiveUpstream
from slb.routing.table import Route

_IDEMPOTENT = frozenset(method.encode() for method in IDEMPOTENT)

_SHARE = 0.2
_FLOOR = 3
_WINDOW = 10.0


def is_idempotent(method: bytes) -> bool:
    """Whether sending the request twice means the same as sending it once."""
    return method in _IDEMPOTENT


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
        """Whether one more may be sent; `requests` is the route's count since its beginning, `now` seconds."""
        if now - self._since > _WINDOW:
            self._move_on(requests, now)
        recent = requests - self._requests_before[0]
        if sum(self._retries) >= max(_FLOOR, _SHARE * recent):
            return False
        self._retries = (self._retries[0], self._retries[1] + 1)
        return True

    def _move_on(self, requests: int, now: float) -> None:
        """The window of now. Nobody looks while nothing fails: then the last 10 s had as many requests as any."""
        passed = now - self._since
        if passed > 2 * _WINDOW:
            lately = (requests - self._requests_before[1]) * _WINDOW / passed
            self._requests_before, self._retries = (requests - lately, requests), (0, 0)
        else:
            self._requests_before, self._retries = (self._requests_before[1], requests), (self._retries[1], 0)
        self._since = now


class Retries:
    """The budgets of all routes of one instance. `finished`: route path -> how many of its requests have ended."""

    def __init__(self, finished: Callable[[str], int], clock: Callable[[], float], rng: Random) -> None:
        self._finished = finished
        self._clock = clock
        self._rng = rng
        self._began = clock()
        self._budgets: dict[str, RetryBudget] = {}

    def has_more(self, route: Route, tried: tuple[LiveUpstream, ...], avoided: frozenset[LiveUpstream]) -> bool:
        """Whether a request that failed at each of `tried` has an attempt left, and an upstream of `route` for it
        that is none of `avoided`."""
        return len(tried) <= route.settings.retries and bool(untried(route.serving, avoided))

    def affords(self, route: Route) -> bool:
        """Whether the budget has room for one more, which is taken from it."""
        budget = self._budgets.get(route.path) or self._budgets.setdefault(route.path, RetryBudget(self._began))
        return budget.take(self._finished(route.path), self._clock())

    def pick(self, untried: tuple[LiveUpstream, ...]) -> LiveUpstream:
        """Whom a request goes to after it has failed elsewhere."""
        return second_choice(untried, self._rng)

    def backoff(self) -> float:
        """Seconds until the next attempt."""
        return backoff(self._rng)
