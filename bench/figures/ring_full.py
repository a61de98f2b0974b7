"""A pick with all that can come to it: a fleet that grows by a third, while its zone ramps up, under load."""

import time
from collections import deque
from collections.abc import Sequence
from random import Random

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.upstream import Handle, LiveUpstream
from slb.balance.view import RouteView
from slb.model import RouteSettings

INFLIGHT_EACH = 2
"""Requests in flight for each upstream, all the while."""

SETTINGS = {
    "policy": "consistent_hash",
    "fade_in": "60m",
    "zone_affinity": True,
    "zone_delay": "0s",
    "zone_fade_in": "60m",
}
HALFWAY_SECONDS = 1800.0
"""Of what takes an hour: so the measurement is an instant."""


class BusyRing:
    """Of `policy` a quarter of `upstreams` are halfway through their fade-in, and the zone through its ramp."""

    def __init__(self, upstreams: Sequence[LiveUpstream]) -> None:
        self._passed = 0.0
        self._view = RouteView(tuple(upstreams))
        self.policy = ConsistentHash(Random(1), self._clock, zone="z0")
        self._settings = RouteSettings.model_validate(SETTINGS)
        self._handles: deque[Handle] = deque()
        self._picked: list[LiveUpstream] = []
        self._follow(upstreams[: len(upstreams) * 3 // 4])
        self.pick(b"the ramp begins when it is first asked")
        self._follow(upstreams)
        self._passed += HALFWAY_SECONDS

    def pick(self, key: bytes) -> None:
        """What is measured."""
        self._picked.append(self.policy.pick(self._view, key))

    def turn_over(self) -> None:
        """Those picked last have their requests, and as many others have ended."""
        self._handles.extend(map(Handle, self._picked))
        self._picked.clear()
        while len(self._handles) > INFLIGHT_EACH * len(self._view.upstreams):
            self._handles.popleft().release()

    def rest(self) -> None:
        """All requests have ended: nobody is to look stuck who only waits for the next turn."""
        while self._handles:
            self._handles.popleft().release()

    def _follow(self, upstreams: Sequence[LiveUpstream]) -> None:
        self.policy.follow(tuple(upstreams), self._settings)
        self._passed += self._settings.ring_debounce
        for _ in self.policy.steps():
            pass

    def _clock(self) -> float:
        return time.monotonic() + self._passed
