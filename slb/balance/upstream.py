"""An upstream with what is counted of it here; it outlives every table that names it."""

from slb.model import Upstream


class LiveUpstream:
    """`inflight` is the number of live handles of this process; `spec` is replaced when attributes change."""

    __slots__ = ("inflight", "member", "spec")

    def __init__(self, spec: Upstream) -> None:
        self.member = spec.member
        self.spec = spec
        self.inflight = 0

    def __repr__(self) -> str:
        return f"<LiveUpstream {self.member} inflight={self.inflight}>"


class Handle:
    """One request's hold on an upstream, from the pick until its body has ended, failed or been abandoned."""

    __slots__ = ("_held", "upstream")

    def __init__(self, upstream: LiveUpstream) -> None:
        self.upstream = upstream
        self._held = True
        upstream.inflight += 1

    def release(self) -> None:
        """Give the slot back; every call after the first does nothing."""
        if self._held:
            self._held = False
            self.upstream.inflight -= 1
