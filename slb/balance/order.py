"""Upstreams in an order of preference: for capped routes, where the first with room is taken, and for retries."""

from collections.abc import Iterable
from operator import attrgetter
from random import Random

from slb.balance.upstream import LiveUpstream


def rotated(first: LiveUpstream, eligible: tuple[LiveUpstream, ...]) -> tuple[LiveUpstream, ...]:
    """`first`, then the others in their order from the next one on."""
    at = eligible.index(first)
    return eligible[at:] + eligible[:at]


def by_load(upstreams: Iterable[LiveUpstream]) -> list[LiveUpstream]:
    """Fewest requests in flight here per slot first; equals stay in their order."""
    return sorted(upstreams, key=lambda upstream: upstream.inflight / upstream.spec.slots)


def second_choice(untried: tuple[LiveUpstream, ...], rng: Random) -> LiveUpstream:
    """The one with the fewest requests in flight here, for retries without a key. Not by the policy: a round-robin
    that a retry moved on would begin the next request at the same bad upstream again."""
    least = min(upstream.inflight for upstream in untried)
    return rng.choice([upstream for upstream in untried if upstream.inflight == least])


def second_choices(untried: tuple[LiveUpstream, ...], rng: Random) -> list[LiveUpstream]:
    """All of them by the same rule."""
    return sorted(rng.sample(untried, len(untried)), key=attrgetter("inflight"))
