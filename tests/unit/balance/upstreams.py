"""Upstreams for the tests of policies."""

from random import Random

from slb.balance.policy import POLICIES, Means, Policy
from slb.balance.upstream import ALWAYS, LiveUpstream
from slb.balance.view import RouteView
from slb.model import PolicyName, Upstream


def upstream(
    name: str, weight: int = 1, slots: int = 1, inflight: int = 0, seen: float = ALWAYS, node: str = ""
) -> LiveUpstream:
    """The upstream `name:80`."""
    live = LiveUpstream(Upstream.of(f"{name}:80", {"weight": str(weight), "slots": str(slots), "node": node}), seen)
    live.inflight = inflight
    return live


def upstreams(names: str) -> tuple[LiveUpstream, ...]:
    """One for each letter."""
    return tuple(map(upstream, names))


def name(live: LiveUpstream) -> str:
    return live.member.removesuffix(":80")


def picks(policy: Policy, eligible: tuple[LiveUpstream, ...], count: int) -> str:
    """The names of so many picks, in order."""
    view = RouteView(eligible)
    return "".join(name(policy.pick(view)) for _ in range(count))


def made_policy(name: PolicyName, seed: int) -> Policy:
    """The policy of this name, at a time that stands still."""
    return POLICIES[name](Means(Random(seed), lambda: 0.0))
