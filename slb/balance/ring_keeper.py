"""Rings kept in step with the members of a route.

A new upstream waits for the debounce, so that a rolling deploy is one change and one ring; a removal takes effect
at once. The rings are never emptied: without members the last good ones stay, since a route that lost all members
is usually an error. Building is sliced, and what is read meanwhile is the rings as they were.
"""

import math
from collections.abc import Generator, Iterable

from slb.balance.ring import Ring
from slb.balance.ring_run import once
from slb.balance.ring_set import RingSet
from slb.balance.upstream import ALWAYS, LiveUpstream

Members = frozenset[LiveUpstream]

NO_MEMBERS: Members = frozenset()

_MOST_FADING = 16
"""Rings that fade in, at most: every request looks at each, and each is made again when an upstream leaves."""


class RingKeeper:
    """`rings` are those of all members, None until the first are built; `local` are those of the members in `zone`,
    None where none of it is established. Both are immutable and replaced together, and a ring begins to fade in
    at the same time in both.

    Call `follow` at every change of the members, and run `step` at the time of `wake`. `window` (seconds a ring
    takes to fade in; it holds for rings that begin later), `debounce` (seconds) and `zone` may be set at any time.
    Times are seconds of one clock of the caller's.
    """

    def __init__(self, window: float, debounce: float, zone: str = "") -> None:
        self.window = window
        self.debounce = debounce
        self.zone = zone
        self.rings: RingSet | None = None
        self.local: RingSet | None = None
        self._members = NO_MEMBERS
        self._pending: dict[LiveUpstream, float] = {}  # upstreams in no ring yet, since when
        self._building = False
        self._cold_until = -math.inf

    def follow(self, members: Iterable[LiveUpstream], now: float) -> None:
        """Set the members."""
        self._members = frozenset(once(members))
        if self.rings is not None:
            self._swap(self.rings, self.local)
        self._await_new(now)

    def wake(self) -> float:
        """When `step` has something to do; -inf: it has already, inf: not before the members change."""
        if self._building:
            return math.inf
        if self._orphaned() or self._zone_moved():
            return -math.inf
        fading = self.rings.fading if self.rings else ()
        return min([self._grows_at(), *(each.ends for each in fading)])

    def step(self, now: float) -> Generator[None, None, None]:
        """Bring the rings up to date. A millisecond or so of work between two yields; the new rings are there when
        it ends. Closed halfway, it has changed nothing. While one is running, others end at once."""
        if self.wake() > now:
            return
        self._building = True
        try:
            rings = yield from self._grown(now)
            near = self._local_members(rings)
            local = (yield from rings.thinning(rings.newest.members - near)) if near else None
        finally:
            self._building = False
        self._swap(rings, local)  # some may have left meanwhile
        self._await_new(now)

    def _grown(self, now: float) -> Generator[None, None, RingSet]:
        """The rings with all upstreams that have waited long enough, and those that came after them."""
        if self.rings is None or self._orphaned():
            first = yield from Ring.build(self._members)  # no upstream is warm: there is nothing to fade from
            # Nor is there for those that come with the first, as a route's upstreams do that register one by one:
            # the quickest would have all of the traffic till they have faded in.
            cold = all(each.seen > ALWAYS for each in first.upstreams)
            self._cold_until = now + self.debounce if cold else -math.inf
            return RingSet(first)
        rings = self.rings.settled(now)
        if self._grows_at() > now:
            return rings
        window = 0.0 if min(self._pending.values()) <= self._cold_until else self.window
        ring = yield from rings.newest.growing(tuple(self._pending))
        return rings.joined(ring, now, window)

    def _local_members(self, rings: RingSet) -> Members:
        """The upstreams of `rings` that are in the zone. None of them, until one is established: before that the
        zone has only cold caches."""
        if not self.zone:
            return NO_MEMBERS
        local = frozenset(upstream for upstream in rings.newest.upstreams if upstream.spec.zone == self.zone)
        return local if local & rings.established.members else NO_MEMBERS

    def _swap(self, rings: RingSet, local: RingSet | None) -> None:
        """Set `rings` and `local` without upstreams that are no members; unchanged where there are no members at
        all. A zone that was unset has no local ring from now on: it would begin its ramp, for a later zone."""
        gone = rings.newest.members - self._members if self._members else NO_MEMBERS
        if not self.zone:
            self.local = local = None
        if gone == rings.newest.members:
            return  # the members are others altogether: their rings are built next, and then replace these
        self.rings = rings.without(gone)
        self.local = None if local is None or local.established.members <= gone else local.without(gone)

    def _await_new(self, now: float) -> None:
        here = self.rings.newest.members if self.rings else NO_MEMBERS
        self._pending = {new: self._pending.get(new, now) for new in self._members - here}

    def _grows_at(self) -> float:
        """When the rings grow: all that wait join with the first; while many rings fade in, once one has."""
        at = min(self._pending.values(), default=math.inf) + self.debounce
        fading = self.rings.fading if self.rings else ()
        return max(at, min(each.ends for each in fading)) if len(fading) >= _MOST_FADING else at

    def _orphaned(self) -> bool:
        """There are members, and none of them is in a ring."""
        if not self._members:
            return False
        return self.rings is None or self.rings.newest.members.isdisjoint(self._members)

    def _zone_moved(self) -> bool:
        """The local ring is not of those it should be of: one has changed its zone, or the zone was set."""
        if self.rings is None:
            return False
        return self._local_members(self.rings) != (self.local.newest.members if self.local else NO_MEMBERS)
