"""What the user asked for, and what is the same in every run."""

from collections.abc import Sequence
from dataclasses import dataclass

WAITING = 2
"""Clients for each pod besides the one it serves: somebody always waits."""

WARM_UP_SECONDS = 1.0
QUEUE_SECONDS = 60
SETTINGS = {
    "policy": "least_inflight",
    "max_inflight": "1",
    "when_full": "queue",
    "queue_limit": "100000",
    "queue_timeout": f"{QUEUE_SECONDS}s",
}
"""Of the route: one queue for the whole fleet, one request at a time at each pod."""


@dataclass(frozen=True)
class Plan:
    """Numbers of instances, pods, seconds that each run is counted, seconds of a service, and a seed."""

    instances: Sequence[int]
    pods: int
    seconds: float
    service: float
    seed: int

    @property
    def clients(self) -> int:
        return self.pods * (1 + WAITING)

    @property
    def runs(self) -> int:
        """In step and out of step, with real processes and the ledger alone."""
        return 4 * len(self.instances)
