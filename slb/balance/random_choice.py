"""Uniformly random."""

from random import Random

from slb.balance.standing import Standing, drawn_by
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without


class RandomChoice:
    """Every eligible upstream with the same probability."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        eligible = view.upstreams if without is None else view.left(without)
        return eligible[int(self._rng.random() * len(eligible))]

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> list[LiveUpstream]:
        first = self.pick(view, key, without)
        others = [upstream for upstream in view.left(without) if upstream is not first]
        self._rng.shuffle(others)
        return [first, *others]

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        chance = round(1 / len(view.upstreams), 3)
        return drawn_by("chance, the same for all", view.upstreams, lambda _: chance)
