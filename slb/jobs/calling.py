"""Calls to GPUs, over the connections that this process has to its upstreams; what fails there counts for their
health as a request's failure does."""

import time

from slb.errors import OVERLOADED, REPLY_TOO_LARGE, Refused
from slb.jobs.gpu_call import Answer, AnswerTooLarge, GpuRequest
from slb.routing.witness import Witness
from slb.upstreams.call import CallFailed, call
from slb.upstreams.pool import Pools

_CONNECT_WITHIN = 5.0
"""Seconds for a new connection: a job waits longer than a client."""


class Calls:
    """Its instances are `gpu_call.Caller`s. `witness` is told what calls say of their upstreams."""

    def __init__(self, pools: Pools, witness: Witness) -> None:
        self._pools = pools
        self._witness = witness

    async def __call__(self, request: GpuRequest) -> Answer:
        upstream = request.upstream
        try:
            answer = await self._sent(request)
        except CallFailed as error:
            if error.reason is not REPLY_TOO_LARGE:
                if error.refused:
                    self._witness.refused(upstream)
                if error.reason is not OVERLOADED:
                    self._witness.failed(upstream, error.reason.name)
            raise _raised_for(error) from None
        if answer.status not in request.busy:  # the dispatcher itself leaves those alone that are
            if request.speaks_against(answer.status):
                self._witness.failed(upstream, str(answer.status))
            else:
                upstream.answered_at = upstream.alive_at
                self._witness.answered(upstream)
        return answer

    async def look(self, request: GpuRequest) -> Answer:
        """A `gpu_call.Caller` too, whose calls are no evidence: a GPU that is busy may be slow to say so."""
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
        request.upstream.alive_at = time.monotonic()
        return Answer(reply.status, reply.body)


def _raised_for(error: CallFailed) -> Exception:
    return AnswerTooLarge() if error.reason is REPLY_TOO_LARGE else Refused(error.reason, error.detail)
