"""The one-method interface of every policy, and the names users type for them."""

from collections.abc import Callable
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
    """Chooses among upstreams that may take the request; one policy object belongs to one route."""

    def pick(self, eligible: tuple[LiveUpstream, ...]) -> LiveUpstream:
        """One of `eligible`, which is not empty and is ordered by member."""


POLICIES: dict[PolicyName, Callable[[Random], Policy]] = {
    "round_robin": RoundRobin,
    "weighted_round_robin": WeightedRoundRobin,
    "random": RandomChoice,
    "p2c": PowerOfTwoChoices,
    "least_local": LeastLocal,
    "least_inflight": LeastInflight,
}
