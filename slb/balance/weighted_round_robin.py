"""Smooth weighted round-robin, as nginx does it: weights 5,1,1 give a a b a c a a, not five in a row."""

from random import Random

from slb.balance.upstream import LiveUpstream


class WeightedRoundRobin:
    """Each pick raises everybody's credit by its weight, takes the highest, and lowers that one by the sum.
    Over sum(weights) picks each is chosen exactly weight times."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._credit: dict[str, float] = {}

    def pick(self, eligible: tuple[LiveUpstream, ...]) -> LiveUpstream:
        if len(self._credit) > 2 * len(eligible):
            self._forget_all_but(eligible)
        credit = self._credit
        total = 0
        best = eligible[0]
        for upstream in eligible:
            weight = upstream.spec.weight
            total += weight
            credit[upstream.member] = credit.get(upstream.member, self._first_credit(weight)) + weight
            if credit[upstream.member] > credit[best.member]:
                best = upstream
        credit[best.member] -= total
        return best

    def _first_credit(self, weight: int) -> float:
        """A random head start below one turn, so that instances do not all begin with the same upstream."""
        return self._rng.random() * weight

    def _forget_all_but(self, eligible: tuple[LiveUpstream, ...]) -> None:
        members = {upstream.member for upstream in eligible}
        self._credit = {member: value for member, value in self._credit.items() if member in members}
