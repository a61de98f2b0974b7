"""The least loaded as far as this instance can see."""

from random import Random

from slb.balance.order import by_load
from slb.balance.standing import Standing, least_of, per_slot
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without


class LeastLocal:
    """Fewest requests in flight here per slot; the search starts one further each time, so ties rotate."""

    greedy = True
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._start = rng.randrange(1 << 16)

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        eligible = view.upstreams if without is None else view.left(without)
        start = self._start % len(eligible)
        self._start = start + 1
        best = eligible[start]
        for upstream in eligible[start + 1 :] + eligible[:start]:
            if upstream.inflight * best.spec.slots < best.inflight * upstream.spec.slots:
                best = upstream
        return best

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> list[LiveUpstream]:
        eligible = view.left(without)
        start = self._start % len(eligible)
        self._start = start + 1
        return by_load(eligible[start:] + eligible[:start])

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        start = self._start % len(view.upstreams)
        turns = view.upstreams[start:] + view.upstreams[:start]
        return least_of("requests in flight here per slot, the least first", turns, per_slot)
