"""Where requests have failed, by their ids: for a retry that asks again.

Envoy's router does not ask for its own retries: it goes down the list that it has. But a retry of what is before
the Envoy that asks (another Envoy, or the same one through an internal listener) is a new request, with the id of
the first and the number of the attempt."""

from collections.abc import Callable

from slb.balance.upstream import LiveUpstream

ATTEMPT: str = "x-envoy-attempt-count"
_MOST_REQUESTS = 1024
_MOST_UPSTREAMS = 16
_SECONDS = 60.0
"""Ids are clients' to choose: what is kept for them is bounded, and soon forgotten."""

_NONE: frozenset[LiveUpstream] = frozenset()


class Failures:
    """Of this process. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, frozenset[LiveUpstream]]] = {}

    def note(self, request_id: str, upstream: LiveUpstream) -> None:
        known = self.of(request_id)
        self._known.pop(request_id, None)
        if len(self._known) >= _MOST_REQUESTS:
            del self._known[next(iter(self._known))]  # the oldest
        if len(known) < _MOST_UPSTREAMS:
            known |= {upstream}
        self._known[request_id] = self._clock(), known

    def of(self, request_id: str) -> frozenset[LiveUpstream]:
        noted, upstreams = self._known.get(request_id, (0.0, _NONE))
        return upstreams if upstreams and self._clock() - noted < _SECONDS else _NONE
