"""The interface of every policy, and the names users type for them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol

from slb.balance.consistent_hash import ConsistentHash
from slb.balance.least_local import LeastLocal
from slb.balance.p2c import PowerOfTwoChoices
from slb.balance.random_choice import RandomChoice
from slb.balance.round_robin import RoundRobin
from slb.balance.standing import Standing
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView, Without
from slb.balance.weighted_round_robin import WeightedRoundRobin
from slb.model import PolicyName


class Policy(Protocol):
    """Chooses one of a route's upstreams; one policy object belongs to one route. `view`: the route's as it is now.
    `without`: upstreams that this request leaves out; at least one of `view` is left. `key`: requests of the same
    key belong together; empty where there is none.

    `greedy`: an idle upstream wins whenever it is eligible, however many others are. `ring`: this policy, where it
    uses the key: it has to be given the route's upstreams, and fades in new ones by itself.
    """

    @property
    def greedy(self) -> bool: ...

    @property
    def ring(self) -> ConsistentHash | None: ...

    def pick(self, view: RouteView, key: bytes = b"", without: Without = None) -> LiveUpstream: ...

    def order(self, view: RouteView, key: bytes = b"", without: Without = None) -> Sequence[LiveUpstream]:
        """All that are left, the preferred first; that is the one `pick` would return, and counts as picked."""

    def standing(self, view: RouteView, key: bytes = b"") -> Standing:
        """What the next pick goes by, of each upstream of `view`; changes nothing. For people: it may be slow."""


class Means(NamedTuple):
    """What policies are made with. `clock`: seconds; `zone`: where this process is, empty where it is not set."""

    rng: Random
    clock: Callable[[], float]
    zone: str = ""


POLICIES: dict[PolicyName, Callable[[Means], Policy]] = {
    "round_robin": lambda means: RoundRobin(means.rng),
    "weighted_round_robin": lambda means: WeightedRoundRobin(means.rng),
    "random": lambda means: RandomChoice(means.rng),
    "p2c": lambda means: PowerOfTwoChoices(means.rng),
    "least_local": lambda means: LeastLocal(means.rng),
    "least_inflight": lambda means: LeastLocal(means.rng),  # where Redis does not decide
    "consistent_hash": lambda means: ConsistentHash(means.rng, means.clock, means.zone),
}
