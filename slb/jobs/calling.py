"""Calls to GPUs, over the connections that this process has to its upstreams; what fails there counts for their
health as a request's failure does."""

from collections.abc import Callable, Mapping

from slb.balance.upstream import LiveUpstream
from slb.errors import OVERLOADED, REPLY_TOO_LARGE, Refused
from slb.jobs.attempt import Answer, AnswerTooLarge
from slb.upstreams.call import CallFailed, call
from slb.upstreams.pool import Pools

_CONNECT_WITHIN = 5.0
"""Seconds for a new connection: a job waits longer than a client."""


class Calls:
    """Its instances are `attempt.Caller`s. `on_failure` and `on_refusal` are called as the proxy calls them."""

    def __init__(
        self,
        pools: Pools,
        on_failure: Callable[[LiveUpstream, str], None],
        on_refusal: Callable[[LiveUpstream], None],
    ) -> None:
        self._pools = pools
        self._on_failure = on_failure
        self._on_refusal = on_refusal

    async def __call__(
        self,
        upstream: LiveUpstream,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        seconds: float,
        most: int,
    ) -> Answer:
        try:
            answer = await self._sent(upstream, method, target, headers, body, seconds, most)
        except CallFailed as error:
            if error.reason is REPLY_TOO_LARGE:
                raise AnswerTooLarge from None
            if error.refused:
                self._on_refusal(upstream)
            if error.reason is not OVERLOADED:
                self._on_failure(upstream, error.reason.name)
            raise Refused(error.reason, error.detail) from None
        if answer.status < 500:
            upstream.failures = 0
        return answer

    async def look(
        self,
        upstream: LiveUpstream,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        seconds: float,
        most: int,
    ) -> Answer:
        """An `attempt.Caller` too, whose calls are no evidence: a GPU that is busy may be slow to say so."""
        try:
            return await self._sent(upstream, method, target, headers, body, seconds, most)
        except CallFailed as error:
            raise Refused(error.reason, error.detail) from None

    async def _sent(
        self,
        upstream: LiveUpstream,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        seconds: float,
        most: int,
    ) -> Answer:
        reply = await call(
            self._pools.of(upstream),
            method.encode(),
            target.encode(),
            [f"{name}: {value}".encode() for name, value in headers.items()],
            body,
            timeout=seconds,
            connect_timeout=min(_CONNECT_WITHIN, seconds),
            most_bytes=most,
            idempotent=method == "GET",
        )
        return Answer(reply.status, reply.body)
