"""Smooth weighted round-robin, as nginx does it: weights 5,1,1 give a a b a c a a, not five in a row."""

from random import Random

from slb.balance.standing import Standing
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without


class WeightedRoundRobin:
    """Each pick raises each upstream's credit by its weight, takes the highest, and lowers that one by the sum.
    Over sum(weights) picks each is chosen exactly weight times."""

    greedy = False
    ring: None = None

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._credit: dict[str, float] = {}
        self._view: RouteView | None = None

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream:
        eligible = view.upstreams
        if without is not None or view is not self._view:
            eligible = view.left(without)
            self._settle(eligible)
            self._view = None if without else view
        credit = self._credit
        total = 0
        best = eligible[0]
        for upstream in eligible:
            weight = upstream.spec.weight
            total += weight
            credit[upstream.member] += weight
            if credit[upstream.member] > credit[best.member]:
                best = upstream
        credit[best.member] -= total
        return best

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> list[LiveUpstream]:
        """The one whose turn it is, then the others by their next turn."""
        first = self.pick(view, key, without)
        others = (upstream for upstream in view.left(without) if upstream is not first)
        return [first, *sorted(others, key=self._credit_next, reverse=True)]

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        by = "credit, which grows by the weight with each pick, the most first"
        if any(each.member not in self._credit for each in view.upstreams):  # its head start is drawn yet
            return Standing(by, {}, ())
        ranked = sorted(view.upstreams, key=self._credit_next, reverse=True)
        return Standing(by, {each: round(self._credit_next(each), 3) for each in ranked}, ranked)

    def _credit_next(self, upstream: LiveUpstream) -> float:
        return self._credit[upstream.member] + upstream.spec.weight

    def _settle(self, eligible: tuple[LiveUpstream, ...]) -> None:
        """Others are eligible, or weights have changed: what was earned before counts for one round at most, else
        an upstream that weighed much would be starved for as long as its old debt lasts."""
        if len(self._credit) > 2 * len(eligible):
            members = {upstream.member for upstream in eligible}
            self._credit = {member: value for member, value in self._credit.items() if member in members}
        total = sum(upstream.spec.weight for upstream in eligible)
        for upstream in eligible:
            earned = self._credit.get(upstream.member)
            if earned is None:
                # A head start below one turn, so that instances do not all begin with the same upstream.
                self._credit[upstream.member] = self._rng.random() * upstream.spec.weight
            else:
                self._credit[upstream.member] = max(-total, min(total, earned))
