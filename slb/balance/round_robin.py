"""Round-robin that stays exact while upstreams come and go."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import cycle
from operator import attrgetter
from random import Random

from slb.balance.order import rotated
from slb.balance.standing import Standing
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without

_member = attrgetter("member")


class RoundRobin:
    """Goes round in member order. It stores the last upstream picked, not an index: when the set changes, it goes
    on with that one's successor, so no upstream is skipped or picked twice. It starts at a random place, since
    instances that all start with the first upstream would send it their bursts together."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._view: RouteView | None = None
        self._turns: Iterator[LiveUpstream] = iter(())
        self._last: LiveUpstream | None = None

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        if without is not None or view is not self._view:
            self._resume(view, without)
        self._last = chosen = next(self._turns)
        return chosen

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> tuple[LiveUpstream, ...]:
        return rotated(self.pick(view, key, without), view.left(without))

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        upstreams, last = view.upstreams, self._last
        if last is None:
            return Standing("turns, from one that is drawn", {}, ())
        start = bisect_right(upstreams, last.member, key=_member)
        turns = upstreams[start:] + upstreams[:start]
        return Standing("turns to go", {each: turn for turn, each in enumerate(turns)}, turns)

    def _resume(self, view: RouteView, without: Without) -> None:
        eligible, last = view.left(without), self._last
        if last is None:
            start = self._rng.randrange(len(eligible))
        else:
            start = bisect_right(eligible, last.member, key=_member)
        self._turns = cycle(eligible[start:] + eligible[:start])
        self._view = None if without else view
