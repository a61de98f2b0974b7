"""What a face tells of its requests to whoever judges the upstreams' health."""

from typing import Protocol

from slb.balance.upstream import LiveUpstream
from slb.routing.table import Route


class Witness(Protocol):
    """`routing/passive.py` has the judge. `route`: the one that the request went by, None where it went by none."""

    def answered(self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0) -> None:
        """One request was answered well, to the end of its reply. `took`: seconds from when all of it was sent to
        the first byte; 0 where they say nothing of the upstream."""

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        """A reply of status 429, or 500 and above. Whether it is an answer all the same. `retry_after`: seconds,
        None where the reply has no such field."""

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        """One attempt failed there; `reason`: the error's name."""

    def refused(self, upstream: LiveUpstream) -> None:
        """It has refused a connection; `failed` is called too."""

    def unanswered(self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool) -> bool:
        """A request that was sent wholly at `sent_at` has no answer yet, or its client `has_left` without one.
        Whether that is the upstream's fault."""

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        """Seconds from when it was sent for which a request that failed there keeps its slot."""


class _Unheard:
    def answered(self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0) -> None:
        upstream.failures = 0

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        return False

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        upstream.failures += 1

    def refused(self, upstream: LiveUpstream) -> None: ...

    def unanswered(self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool) -> bool:
        return False

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        return 0.0


UNHEARD: Witness = _Unheard()
"""Where nobody judges."""
