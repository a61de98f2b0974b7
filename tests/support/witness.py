"""What a face tells of its upstreams, kept for a test."""

import pytest

from slb.balance import pace
from slb.balance.judge import BUSY, is_failure
from slb.balance.upstream import LiveUpstream
from slb.routing import passive, table, witness
from slb.routing.table import Route


def stuck_soon(patch: pytest.MonkeyPatch) -> None:
    """Let an upstream be stuck after half a second instead of 30, and be asked about ten times a second."""
    for module in (pace, table, passive):
        patch.setattr(module, "STUCK_LEAST", 0.5)
    patch.setattr(witness, "LOOK_AGAIN", 0.1)


class Recorder:
    """`failures`: upstream and why, of each; `refusals`: upstreams that refused connections; `busy`: those that
    said so, and for how many seconds; `left`: those whose clients left without an answer, or were asked about while
    these wait, and that is their fault where it `blames` them; `took`: of each answer; `holds`: seconds for which
    failed requests keep their slots, and `held`: where that was asked of."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.refusals: list[str] = []
        self.busy: list[tuple[str, float | None]] = []
        self.left: list[str] = []
        self.took: list[float] = []
        self.blames = False
        self.holds = 0.0
        self.held: list[str] = []

    @property
    def reasons(self) -> list[str]:
        return [why for _, why in self.failures]

    def answered(
        self, upstream: LiveUpstream, route: Route | None = None, took: float = 0.0, sent_at: float = 0.0
    ) -> None:
        upstream.failures = 0
        self.took.append(took)

    def replied(
        self, upstream: LiveUpstream, status: int, retry_after: float | None, route: Route | None = None
    ) -> bool:
        if status in BUSY:
            self.busy.append((upstream.member, retry_after))
        elif is_failure(status):
            self.failed(upstream, str(status), route)
        else:
            return True
        return False

    def failed(self, upstream: LiveUpstream, reason: str, route: Route | None = None) -> None:
        self.failures.append((upstream.member, reason))

    def refused(self, upstream: LiveUpstream) -> None:
        self.refusals.append(upstream.member)

    def unanswered(
        self, upstream: LiveUpstream, sent_at: float, route: Route, has_left: bool, has_begun: bool = False
    ) -> bool:
        self.left.append(upstream.member)
        return self.blames and has_left

    def holds_for(self, upstream: LiveUpstream, route: Route) -> float:
        self.held.append(upstream.member)
        return self.holds
