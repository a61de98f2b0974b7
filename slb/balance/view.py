"""What a policy picks from: the upstreams that serve one version of a route."""

import math
from collections.abc import Collection
from random import Random
from typing import Any

from slb.balance.eligible import elsewhere
from slb.balance.fade_in import deprioritized, fading_until, held_back, shares, shares_back
from slb.balance.upstream import LiveUpstream

Without = Collection[LiveUpstream] | None
"""Upstreams that a request leaves out; None, which costs the least, where it leaves out none."""

_NONE: frozenset[LiveUpstream] = frozenset()


class RouteView:
    """The `upstreams` that serve a route, ordered by member. A view never gets others: when they change, the route
    gets a new view. So what a policy has computed of a view holds while it is given the same object.

    `ill`: those of them that are not available; they serve only in a panic. `fade_in`: seconds; under a `greedy`
    policy an upstream that fades in is treated otherwise (`deprioritized` in fade_in.py). `fading_until`: when the
    last of them has faded in, on the clock of `LiveUpstream.seen`; 0.0 once that is over, endless while some are on
    probation. `snapshot`: what those who explain decisions keep of a moment, which holds until `snapshot_until`, on
    the same clock.
    """

    __slots__ = (
        *("_fade_in", "_greedy", "_returning", "fading_until", "ill"),
        *("snapshot", "snapshot_until", "upstreams"),
    )

    def __init__(
        self,
        upstreams: tuple[LiveUpstream, ...],
        ill: frozenset[LiveUpstream] = _NONE,
        fade_in: float = 0.0,
        greedy: bool = False,
    ) -> None:
        self.upstreams = upstreams
        self.ill = ill
        self.snapshot: Any = None
        self.snapshot_until = 0.0
        self._fade_in = fade_in
        self._greedy = greedy
        self._returning = tuple(each for each in upstreams if each.on_probation)
        self.fading_until = math.inf if self._returning else fading_until(upstreams, fade_in)

    def left(self, without: Without) -> tuple[LiveUpstream, ...]:
        """`upstreams` that are none of `without`, in the same order."""
        return tuple(each for each in self.upstreams if each not in without) if without else self.upstreams

    def avoiding(
        self,
        tried: frozenset[LiveUpstream],
        failed: Collection[LiveUpstream],
        outside: frozenset[LiveUpstream] = _NONE,
    ) -> frozenset[LiveUpstream]:
        """What a further attempt leaves out: those `tried`; as long as any other is left, also those on probation,
        and in a panic those that are ill; and as long as any is left then, all on the node of one that `failed`,
        since a node may have failed as a whole. `outside`: what it leaves out in any case."""
        if not tried:
            return tried
        more = tried.union(self.ill, (each for each in self.upstreams if each.on_probation))
        left = self.left(more | outside)
        return more.union(set(left).difference(elsewhere(left, failed))) if left else tried

    def deprioritized(self, now: float, rng: Random) -> tuple[LiveUpstream, ...]:
        """What this request leaves out because it fades in, or is on probation; never all. `now`: on the clock of
        `LiveUpstream.seen`."""
        if now >= self.fading_until:
            self.fading_until = 0.0
            return ()
        fading = deprioritized(self.upstreams, now, self._fade_in, rng, self._greedy) if self._fade_in else ()
        returning = held_back(self._returning, self.upstreams, now, rng, self._greedy)
        if not returning or len(left_out := {*fading, *returning}) == len(self.upstreams):
            return fading
        return tuple(left_out)

    def fading(self, now: float) -> dict[LiveUpstream, float]:
        """The share, of what it will have, that each of those has now that fade in or are on probation. `now`: as
        above."""
        if now >= self.fading_until:
            return {}
        new = shares(self.upstreams, now, self._fade_in) if self._fade_in else {}
        back = shares_back(self._returning, now)
        return {each: share for each, share in (*new.items(), *back.items()) if share < 1}

    def drawn(self, now: float) -> frozenset[LiveUpstream]:
        """Those of which chance decides, for each request, whether `deprioritized` leaves them out. `now`: as
        above."""
        new = shares(self.upstreams, now, self._fade_in) if self._fade_in else {}
        back = shares_back(self._returning, now)
        return frozenset((*new, *(each for each, share in back.items() if each.proven and share < 1)))

    @property
    def probed(self) -> frozenset[LiveUpstream]:
        """Those that `deprioritized` leaves out whatever chance says: the request that is to prove them is under
        way. None where they are all."""
        found = frozenset(each for each in self._returning if each.is_probed)
        return found if len(found) < len(self.upstreams) else _NONE

    def permitting(self, upstreams: tuple[LiveUpstream, ...]) -> "RouteView":
        """The view of some of its upstreams; this very view where they are all."""
        if len(upstreams) == len(self.upstreams):
            return self
        return RouteView(upstreams, self.ill.intersection(upstreams), self._fade_in, self._greedy)
