"""The interface of every policy, and the names users type for them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from slb.balance.least_inflight import LeastInflight
from slb.balance.least_local import LeastLocal
from slb.balance.p2c import PowerOfTwoChoices
from slb.balance.random_choice import RandomChoice
from slb.balance.round_robin import RoundRobin
from slb.balance.upstream import LiveUpstream
from slb.balance.weighted_round_robin import WeightedRoundRobin
from slb.model import PolicyName


class Policy(Protocol):
    """Chooses among upstreams that may take the request; one policy object belongs to one route. `eligible` is not
    empty and is ordered by member.

    `greedy`: an idle upstream wins whenever it is eligible, however many others are.
    """

    @property
    def greedy(self) -> bool: ...

    def pick(self, eligible: tuple[LiveUpstream, ...]) -> LiveUpstream:
        """One of `eligible`."""

    def order(self, eligible: tuple[LiveUpstream, ...]) -> Sequence[LiveUpstream]:
        """All of `eligible`, each as this policy prefers it to those that follow. The first is the one that `pick`
        would have returned, and counts as picked."""


POLICIES: dict[PolicyName, Callable[[Random], Policy]] = {
    "round_robin": RoundRobin,
    "weighted_round_robin": WeightedRoundRobin,
    "random": RandomChoice,
    "p2c": PowerOfTwoChoices,
    "least_local": LeastLocal,
    "least_inflight": LeastInflight,
}
