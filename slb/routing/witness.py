"""What a face tells of its requests to whoever judges the upstreams' health."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from slb.balance.pace import STOOD_STILL
from slb.balance.upstream import Handle, LiveUpstream
from slb.routing.table import Route

_READS_FIRST = 0.05
"""Seconds for which a process that stood still reads what came meanwhile, before it asks."""
LOOK_AGAIN = 5.0
"""Seconds, at most, after which it is asked again of an upstream that owes its first byte: is it slow, or stuck?"""
LEAST_WAIT = 1.0
"""Seconds that a client has to wait at least for its leaving to say anything."""


def hangs(upstream: LiveUpstream, waited: float) -> bool:
    """Whether a client that leaves after so many seconds without its first byte has left for the upstream's sake,
    however patient others are: it is known to be stuck."""
    return upstream.is_known_stuck and waited >= LEAST_WAIT


class Witness(Protocol):
    """`routing/passive.py` has the judge. `route`: the one that the request went by, None where it went by none."""

    def answered(
        self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0, sent_at: float = 0.0
    ) -> None:
        """One request was answered well, to the end of its reply. `took`: seconds from `sent_at`, when all of it
        was sent, to the first byte; 0 where they say nothing of the upstream."""

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        """A reply of status 429, or 500 and above. Whether it is an answer all the same. `retry_after`: seconds,
        None where the reply has no such field."""

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        """One attempt failed there; `reason`: the error's name."""

    def refused(self, upstream: LiveUpstream) -> None:
        """It has refused a connection; `failed` is called too."""

    def unanswered(
        self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool, has_begun: bool = False
    ) -> bool:
        """A request that was sent wholly at `sent_at` has no answer yet, or its client `has_left` without one.
        Whether that is the upstream's fault. `has_begun`: it has some of it, of which the last came then."""

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        """Seconds from when it was sent for which a request that failed there keeps its slot."""


class _Unheard:
    def answered(
        self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0, sent_at: float = 0.0
    ) -> None:
        upstream.failures = 0

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        return False

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        upstream.failures += 1

    def refused(self, upstream: LiveUpstream) -> None: ...

    def unanswered(
        self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool, has_begun: bool = False
    ) -> bool:
        return False

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        return 0.0


UNHEARD: Witness = _Unheard()
"""Where nobody judges."""


def release_later(witness: Witness, handle: Handle, route: Route, sent_at: float, now: float) -> None:
    """A request of `route` has failed where `handle` holds a slot, which is given back no sooner than that of an
    answered one would be. `sent_at`: 0 where it was not sent."""
    rest = sent_at + witness.holds_for(handle.upstream, route) - now
    if rest > 0 and sent_at:
        asyncio.get_running_loop().call_later(rest, handle.release, False)
    else:
        handle.release(completed=False)


def next_look(route: Route, waited: float) -> float:
    """Seconds until it is asked again of an upstream that has owed the first byte for so long."""
    return min(LOOK_AGAIN, max(waited, route.first_look))


class ReplyWatch:
    """The reply to one request, for a face that sees where it begins and ends, and no byte in between. While it is
    `owed`, the judge is asked whether the upstream is slow, or stuck. From where it `begins` until it `ends`, the
    upstream passes for alive. `clock`: seconds."""

    __slots__ = ("_clock", "_timer", "_under_way", "_witness")

    def __init__(self, witness: Witness, clock: Callable[[], float]) -> None:
        self._witness = witness
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: LiveUpstream | None = None

    def owed(self, upstream: LiveUpstream, route: Route, since: float) -> None:
        """`upstream` has all of the request `since` then. May be called again: the last time counts."""
        self._forget_timer()
        self._look_in(route.first_look, upstream, route, since)

    def _look_in(self, seconds: float, upstream: LiveUpstream, route: Route, since: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._turn, loop.time() + seconds, upstream, route, since)

    def _turn(self, due: float, upstream: LiveUpstream, route: Route, since: float) -> None:
        if asyncio.get_running_loop().time() - due < STOOD_STILL:
            self._look(upstream, route, since)
        else:
            self._look_in(_READS_FIRST, upstream, route, since)

    def _look(self, upstream: LiveUpstream, route: Route, since: float) -> None:
        self._witness.unanswered(upstream, since, route, has_left=False)
        self._look_in(next_look(route, self._clock() - since), upstream, route, since)

    def begins(self, upstream: LiveUpstream) -> None:
        """`upstream`, which may be another by now, has sent the head."""
        self._forget_timer()
        self._under_way = upstream
        upstream.unseen += 1

    def ends(self) -> None:
        """It has ended, or none comes any more. Every call after the first does nothing."""
        self._forget_timer()
        upstream, self._under_way = self._under_way, None
        if upstream is not None:
            upstream.unseen -= 1
            upstream.alive_at = self._clock()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
