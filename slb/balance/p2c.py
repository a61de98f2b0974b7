"""The power of two choices (Mitzenmacher 2001): of two random upstreams, the less loaded."""

from random import Random

from slb.balance.order import by_load, rotated
from slb.balance.standing import Standing, drawn_by, per_slot
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without


class PowerOfTwoChoices:
    """Load is requests in flight here per slot. Two different upstreams are compared wherever there are two."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        eligible = view.upstreams if without is None else view.left(without)
        count = len(eligible)
        if count == 1:
            return eligible[0]
        first = self._rng.randrange(count)
        other = (first + 1 + self._rng.randrange(count - 1)) % count
        a, b = eligible[first], eligible[other]
        return b if b.inflight * a.spec.slots < a.inflight * b.spec.slots else a

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> list[LiveUpstream]:
        first, *others = rotated(self.pick(view, key, without), view.left(without))
        return [first, *by_load(others)]

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        by = "requests in flight here per slot, the lesser of two that are drawn"
        return drawn_by(by, view.upstreams, per_slot)
