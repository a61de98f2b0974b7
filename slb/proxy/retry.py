"""Whether a request is sent again: to another upstream, or on a fresh connection to the same one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from slb.balance.eligible import untried
from slb.balance.retry import backoff
from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, UPSTREAM_UNREACHED
from slb.routing.table import Route

_SHARE = 0.2
_FLOOR = 3
_WINDOW = 10.0


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a request so far. `upstreams`: where an attempt failed; `avoided`: these, and those that had no
    connection left; `failures`: for the log, what failed at each. `replaced`: one closed connection was
    replaced."""

    upstreams: tuple[LiveUpstream, ...] = ()
    avoided: frozenset[LiveUpstream] = frozenset()
    failures: tuple[str, ...] = ()
    replaced: bool = False


NOTHING = Tried()


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows a failed attempt: another one with `tried` in `delay` seconds, or none where `tried` is None.
    `refused`: because the budget is spent."""

    tried: Tried | None
    delay: float = 0.0
    refused: bool = False


_NO_WORK = frozenset({UPSTREAM_CONNECT.name, UPSTREAM_UNREACHED.name})
_LAST = Decision(None)
_REFUSED = Decision(None, refused=True)


def on_fresh_connection(tried: Tried, unsent: bool, may_repeat: bool) -> Tried | None:
    """The new `tried` of a request that is sent on a fresh connection to the same upstream, because a pooled one
    ended before the reply: that is not an attempt. None where the request is not sent again.

    `unsent`: nothing of it was written. `may_repeat`: by balance/retry.py. Where some of it was written, one
    connection is replaced at most: else a request that ends every connection would kill each upstream twice.
    """
    if not may_repeat or unsent:
        return tried if may_repeat else None
    return None if tried.replaced else replace(tried, replaced=True)


def past_full(route: Route, tried: Tried, full: Iterable[LiveUpstream]) -> Tried | None:
    """The new `tried` of a request that goes on to an upstream which is not `full`: that is not an attempt. None
    where there is no such upstream."""
    avoided = tried.avoided.union(full)
    return replace(tried, avoided=avoided) if untried(route.serving, avoided) else None


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


class Retries:
    """The budgets of all routes. `finished`: route path -> how many of its requests have ended."""

    def __init__(self, finished: Callable[[str], int], clock: Callable[[], float], rng: Random) -> None:
        self._finished = finished
        self._clock = clock
        self._rng = rng
        self._began = clock()
        self._budgets: dict[str, RetryBudget] = {}

    def after_failure(self, route: Route, tried: Tried, upstream: LiveUpstream, why: str, detail: str) -> Decision:
        """What follows a failure at `upstream`; `why` is its name, `detail` one sentence."""
        upstreams, avoided = (*tried.upstreams, upstream), tried.avoided | {upstream}
        if not self.has_more(route, upstreams, avoided):
            return _LAST
        # A connection that was not made, or that nothing came of, was no upstream's work: that goes by no budget.
        if why not in _NO_WORK and not self.affords(route):
            return _REFUSED
        return Decision(Tried(upstreams, avoided, (*tried.failures, detail), tried.replaced), backoff(self._rng))

    def has_more(self, route: Route, tried: tuple[LiveUpstream, ...], avoided: frozenset[LiveUpstream]) -> bool:
        """Whether there is an attempt left, and an upstream of `route` that is not `avoided`."""
        return len(tried) <= route.settings.retries and bool(untried(route.serving, avoided))

    def affords(self, route: Route) -> bool:
        """Take one retry from the budget of `route`; False where none is left."""
        budget = self._budgets.get(route.path) or self._budgets.setdefault(route.path, RetryBudget(self._began))
        return budget.take(self._finished(route.path), self._clock())
