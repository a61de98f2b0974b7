"""Upstreams in an order of preference: for capped routes, where the first with room is taken, and for retries."""

from collections.abc import Iterable
from operator import attrgetter
from random import Random

from slb.balance.upstream import LiveUpstream


def rotated(first: LiveUpstream, eligible: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
    """`first`, then the others in their order from the next one on. For policies that give no order after their
    first pick: this order spreads the second attempts over all upstreams."""
    at = eligible.index(first)
    return eligible[at:] + eligible[:at]


def by_load(upstreams: Iterable[LiveUpstream]) -> list[LiveUpstream]:
    """Those with the fewest requests in flight here per slot first; equals stay in their order."""
    return sorted(upstreams, key=lambda upstream: upstream.inflight / upstream.spec.slots)


def second_choice(untried: tuple[LiveUpstream, ...], rng: Random) -> LiveUpstream:
    """The least loaded here, any of them where several are: for retries under policies that go by no key. Not by
    the policy: a round-robin that a retry moved on would begin the next request at the same bad upstream again."""
    least = min(upstream.inflight for upstream in untried)
    return rng.choice([upstream for upstream in untried if upstream.inflight == least])


def second_choices(untried: tuple[LiveUpstream, ...], rng: Random) -> list[LiveUpstream]:
    """All of them by the same rule, where the first with room is taken."""
    return sorted(rng.sample(untried, len(untried)), key=attrgetter("inflight"))
