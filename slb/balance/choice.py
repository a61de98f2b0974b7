"""Which upstream an attempt goes to: the rule of the proxy and of the library, for every policy."""

from collections.abc import Callable
from random import Random

from slb.balance.order import second_choice
from slb.balance.policy import Policy
from slb.balance.upstream import LiveUpstream
from slb.balance.view import RouteView


def choose(
    policy: Policy,
    view: RouteView,
    key: bytes,
    without: frozenset[LiveUpstream],
    clock: Callable[[], float],
    rng: Random,
) -> LiveUpstream:
    """One of `view` that is not in `without` (empty at a first attempt); at least one has to be left. `key`: empty
    where the policy goes by none. `clock`: that of `LiveUpstream.seen`."""
    if without:
        return policy.pick(view, key, without) if key else second_choice(view.left(without), rng)
    return policy.pick(view, key, view.deprioritized(clock(), rng) or None if view.fading_until else None)
