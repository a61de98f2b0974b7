"""Which upstreams of a route may take a request at all."""

from collections.abc import Collection, Container, Mapping
from typing import Literal

from slb.balance.upstream import LiveUpstream
from slb.model import RouteSettings, Upstream

NOT_SERVED = frozenset({502, 503, 504})
"""Replies that say the request was not served, of upstreams that may be proxies themselves. Never a 4xx."""

_ROUNDING = 1e-9
"""0.07 * 100 is a little more than 7."""


def takes_requests(member: str, attributes: Mapping[str, Mapping[str, str]]) -> bool:
    """False for an upstream marked `drain`."""
    stored = attributes.get(member)
    return stored is None or not Upstream.of(member, stored).drain


def is_available(upstream: LiveUpstream, settings: RouteSettings) -> bool:
    """Whether a route with these settings may use it: its own check has not found it down, and it is not ejected,
    or the route takes no part in ejection."""
    return (upstream.available or not settings.eject_after) and (
        not upstream.down or settings.health_check not in upstream.down
    )


def why_out(upstream: LiveUpstream, settings: RouteSettings) -> Literal["ejected", "down"] | None:
    """Why it is not available; None where it is."""
    if is_available(upstream, settings):
        return None
    return "ejected" if not upstream.available and settings.eject_after else "down"


def is_busy(upstream: LiveUpstream, settings: RouteSettings) -> bool:
    """Whether it has said that it is full, and a route with these settings sets it aside for that."""
    return upstream.set_aside and settings.eject_after > 0


def condition(
    upstream: LiveUpstream, settings: RouteSettings
) -> Literal["up", "unchecked", "busy", "failing", "stuck", "ejected", "down"]:
    """Its health, for display. Available ones: `stuck` where it owes an answer for too long, `busy` where
    it is set aside, `failing` where the last request failed, `up` where one was answered or the route's check
    passes, else `unchecked`."""
    if out := why_out(upstream, settings):
        return out
    if upstream.is_known_stuck:
        return "stuck"
    if is_busy(upstream, settings):
        return "busy"
    if upstream.failures:
        return "failing"
    return "up" if upstream.answered_at or settings.health_check in upstream.passing else "unchecked"


def served(
    upstreams: tuple[LiveUpstream, ...], settings: RouteSettings
) -> tuple[tuple[LiveUpstream, ...], frozenset[LiveUpstream]]:
    """The available ones of `upstreams`, and no others; or, in a panic, all, and those that are not available.
    Those that are busy serve only where all of the available ones are: they say what their client is to be
    told.

    Panic: fewer than `panic_threshold` of them are available. All the traffic would overload these few, and where
    so many seem down at once, the fault may be in this instance or its network.
    """
    available = tuple(upstream for upstream in upstreams if is_available(upstream, settings))
    if len(available) + _ROUNDING < settings.panic_threshold * len(upstreams):
        return upstreams, frozenset(upstreams).difference(available)
    if len(available) == len(upstreams):
        available = upstreams
    free = tuple(upstream for upstream in available if not is_busy(upstream, settings))
    return (free if free and len(free) < len(available) else available), frozenset()


def may_eject_one_more(upstreams: tuple[LiveUpstream, ...], max_ejected: float) -> bool:
    """Whether one more of them may be ejected; `max_ejected`: the share that may be at a time."""
    ejected = sum(not upstream.available for upstream in upstreams)
    return ejected + 1 <= max_ejected * len(upstreams) + _ROUNDING


def elsewhere(upstreams: tuple[LiveUpstream, ...], failed: Collection[LiveUpstream]) -> tuple[LiveUpstream, ...]:
    """Those of `upstreams` on other nodes than the `failed` ones, since a node may have failed as a whole; all
    where that leaves none."""
    nodes = {each.spec.node for each in failed} - {""}
    return tuple(each for each in upstreams if each.spec.node not in nodes) or upstreams


def untried(upstreams: tuple[LiveUpstream, ...], tried: Container[LiveUpstream]) -> tuple[LiveUpstream, ...]:
    """`upstreams` without those in `tried`."""
    return tuple(upstream for upstream in upstreams if upstream not in tried)
