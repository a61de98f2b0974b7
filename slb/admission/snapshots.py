"""What decisions found, kept so that they can be explained later.

A request remembers the snapshot of its route that was the newest when it was decided. A route has a new one with
every new view, so that what is said of who was left out is always of that moment; and else at most every 0.1 s, so
that figures are of the moment or at most so much older. To read a route takes a process a microsecond or two for
each upstream, which is too much for every request.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from slb.admission.gates import Gates
from slb.admission.route_now import DECIMALS, RouteState
from slb.admission.shown import CandidateNow
from slb.observe.decisions import NOTHING_FOUND, Snapshot
from slb.observe.metrics import Metrics
from slb.routing.table import Route

_EVERY = 0.1
_SHARE_OF_TIME = 0.005
"""Of a process's time that snapshots of all routes together may take."""
_READS, _READS_ONE = 10e-6, 2e-6
"""Seconds to read a route, and each of its upstreams, at most."""
_MOST_UPSTREAMS = 1000
"""Of a route of more no snapshot is made: it would hold the event loop for milliseconds."""
_SIZE_ONE = 10
"""Of a snapshot besides its upstreams, in upstreams."""
_MOST_SHOWN = 50
_SLOW = 0.99
"""A request is slow that takes longer than so many of its route's requests so far."""


class _State:
    """Of one route, as a request finds it that is told of it later."""

    __slots__ = ("_state",)

    def __init__(self, state: RouteState) -> None:
        self._state = state

    def told(self, chosen: str, tried: Sequence[str], held: Mapping[str, int] | None) -> Mapping[str, Any]:
        """As in `State` of observe/decisions.py."""
        found = self._state.shown()
        for each in found["members"]:
            if held is not None:
                _put_exactly(each, found["policy"], held.get(each["member"], 0))
            if each["member"] == chosen:
                each["verdict"] = "chosen"
            elif each["member"] in tried:
                each["verdict"] = "tried"
            elif each["verdict"] == "next":  # for the first request that found this; there may have been more
                each["verdict"] = "eligible"
        first = sorted(found["members"], key=lambda each: each["verdict"] not in ("chosen", "tried"))
        members = sorted(first[:_MOST_SHOWN], key=lambda each: each["member"])
        return {
            "policy": found["policy"],
            "by": found["by"],
            "panic": found["panic"],
            "members": members,
            "left_off": len(first) - len(members),
        }


def _put_exactly(shown: CandidateNow, policy: str, held: int) -> None:
    """Redis has found so many of its slots `held`; the state knows what others read, up to a second before."""
    shown["fleet"] = held
    if shown["score"] is not None and policy == "least_inflight":
        shown["score"] = round(held / shown["slots"], DECIMALS)
    if shown["verdict"] in ("full", "eligible", "next"):
        shown["verdict"] = "full" if 0 < shown["capacity"] <= held else "eligible"


class Snapshots:
    """Makes the snapshots of one server of requests, of all routes. Times are on the clock of
    `LiveUpstream.seen`."""

    def __init__(self, gates: Gates, metrics: Metrics) -> None:
        self._gates = gates
        self._metrics = metrics
        self._free_at = 0.0

    def take(self, route: Route, key: bytes, now: float) -> None:
        """Make a snapshot of the route's view, unless it has one and others have used up the time. To be called
        once `snapshot_until` of the view has passed. `key`: as in `route_now`."""
        view, upstreams = route.view, len(route.members)
        if upstreams > _MOST_UPSTREAMS:
            view.snapshot, view.snapshot_until = NOTHING_FOUND, inf
        elif view.snapshot is not None and now < self._free_at:
            view.snapshot_until = self._free_at
        else:
            takes = _READS + upstreams * _READS_ONE
            self._free_at = max(self._free_at, now) + takes / _SHARE_OF_TIME
            view.snapshot_until = now + _EVERY
            slow = self._metrics.traffic.slower_than(route.path, _SLOW)
            state = _State(RouteState(self._gates, route, key, now))
            view.snapshot = Snapshot(state, now, upstreams + _SIZE_ONE, slow)
            self._metrics.decisions.keep(view.snapshot)
