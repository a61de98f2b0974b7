"""Whether a request is sent again: to another upstream, or on a fresh connection to the same one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from slb.balance.eligible import untried
from slb.balance.retry import RetryBudgets, backoff
from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, UPSTREAM_UNREACHED
from slb.routing.table import Route


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


class Retries:
    """The budgets of all routes. `finished`: route path -> how many of its requests have ended."""

    def __init__(self, finished: Callable[[str], int], clock: Callable[[], float], rng: Random) -> None:
        self._rng = rng
        self._budgets = RetryBudgets(finished, clock)

    def after_failure(self, route: Route, tried: Tried, upstream: LiveUpstream, why: str, detail: str) -> Decision:
        """What follows a failure at `upstream`; `why` is its name, `detail` one sentence."""
        upstreams, avoided = (*tried.upstreams, upstream), tried.avoided | {upstream}
        if not self.has_more(route, upstreams, avoided):
            return _LAST
        # A connection that was not made, or that nothing came of, was no upstream's work: that goes by no budget.
        if why not in _NO_WORK and not self._budgets.afford(route.path):
            return _REFUSED
        return Decision(Tried(upstreams, avoided, (*tried.failures, detail), tried.replaced), backoff(self._rng))

    def has_more(self, route: Route, tried: tuple[LiveUpstream, ...], avoided: frozenset[LiveUpstream]) -> bool:
        """Whether there is an attempt left, and an upstream of `route` that is not `avoided`."""
        return len(tried) <= route.settings.retries and bool(untried(route.serving, avoided))
