"""Calls to GPUs, over the connections that this process has to its upstreams; what fails there counts for their
health as a request's failure does."""

import time
from collections.abc import Callable

from slb.balance.upstream import LiveUpstream
from slb.errors import OVERLOADED, REPLY_TOO_LARGE, Refused
from slb.jobs.gpu_call import Answer, AnswerTooLarge, GpuRequest
from slb.routing.table import Route
from slb.routing.witness import ReplyWatch, Witness, next_look
from slb.upstreams.call import CallFailed, call
from slb.upstreams.pool import Pools

_CONNECT_WITHIN = 5.0
"""Seconds for a new connection: a job waits longer than a client."""

RouteAt = Callable[[str], Route | None]
"""The present route of a path."""


class Calls:
    """Its instances are `gpu_call.Caller`s. `witness` is told what calls say of their upstreams; `clock`:
    seconds."""

    def __init__(
        self, pools: Pools, witness: Witness, route_at: RouteAt, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pools = pools
        self._witness = witness
        self._route_at = route_at
        self._clock = clock

    async def __call__(self, request: GpuRequest) -> Answer:
        upstream, sent_at = request.upstream, self._clock()
        watch = _JobWatch(self._witness, self._clock, self._route_at)
        if request.is_job and (route := self._route_at(request.route)) is not None:
            watch.owed(upstream, route, sent_at)
        try:
            answer = await self._sent(request)
        except CallFailed as error:
            if error.reason is not REPLY_TOO_LARGE:
                if error.refused:
                    self._witness.refused(upstream)
                if error.reason is not OVERLOADED:
                    self._witness.failed(upstream, error.reason.name, self._route_at(request.route))
            raise _raised_for(error) from None
        finally:
            watch.ends()
        upstream.alive_at = self._clock()
        if answer.status not in request.busy:  # the dispatcher itself leaves those alone that are
            route = self._route_at(request.route)
            if request.speaks_against(answer.status):
                self._witness.failed(upstream, str(answer.status), route)
            else:
                upstream.answered_at = upstream.alive_at
                took = upstream.alive_at - sent_at if request.is_job and answer.status < 300 else 0.0
                self._witness.answered(upstream, route, took, sent_at)
        return answer

    async def look(self, request: GpuRequest) -> Answer:
        """A `gpu_call.Caller` too, whose calls are no evidence: a GPU that is busy may be slow to say so, and the
        server of one that hangs may answer."""
        try:
            return await self._sent(request)
        except CallFailed as error:
            raise _raised_for(error) from None

    async def _sent(self, request: GpuRequest) -> Answer:
        reply = await call(
            self._pools.of(request.upstream),
            request.method.encode(),
            request.target.encode(),
            [f"{name}: {value}".encode() for name, value in request.headers.items()],
            request.body,
            timeout=request.seconds,
            connect_timeout=min(_CONNECT_WITHIN, request.seconds),
            most_bytes=request.most,
            idempotent=request.method == "GET",
        )
        return Answer(reply.status, reply.body, reply.header("Retry-After"))


class _JobWatch(ReplyWatch):
    """Jobs take minutes, and a table lasts no longer than until the next change. Until a job of the model has been
    answered here nobody knows how long they take: then nothing is asked."""

    __slots__ = ("_route_at",)

    def __init__(self, witness: Witness, clock: Callable[[], float], route_at: RouteAt) -> None:
        super().__init__(witness, clock)
        self._route_at = route_at

    def _look(self, upstream: LiveUpstream, route: Route, since: float) -> None:
        route = self._route_at(route.path) or route
        if route.pace.usual:
            super()._look(upstream, route, since)
        else:
            self._look_in(next_look(route, 0.0), upstream, route, since)


def _raised_for(error: CallFailed) -> Exception:
    return AnswerTooLarge() if error.reason is REPLY_TOO_LARGE else Refused(error.reason, error.detail)
