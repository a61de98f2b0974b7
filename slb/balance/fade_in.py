"""A new upstream's share grows over the route's `fade_in`: it looks idle, and would be hammered before it is warm.

The curve is a straight line, as Envoy's slow start and Skipper's fade-in have it by default: at a quarter of the
time a quarter of the share. It starts from nothing, not from a floor, since the warm upstreams take the rest.
"""

from random import Random

from slb.balance.upstream import LiveUpstream

Upstreams = tuple[LiveUpstream, ...]

_FIRST_SHARE = 0.1
"""Of what an upstream that comes back from an ejection will have."""


def fading_until(upstreams: Upstreams, fade_in: float) -> float:
    """When the newest of them has its whole share, on the clock of `LiveUpstream.seen`; 0.0 where all have theirs
    for good: without a `fade_in`, or where none has come after the others."""
    if not fade_in or not upstreams:
        return 0.0
    newest = max(upstream.seen for upstream in upstreams)
    oldest = min(upstream.seen for upstream in upstreams)
    return newest + fade_in if newest > oldest else 0.0


def deprioritized(upstreams: Upstreams, now: float, fade_in: float, rng: Random, greedy: bool = False) -> Upstreams:
    """Those of `upstreams` that this request is not sent to because they are new; drawn for each request, never
    all.

    An upstream is left in with the probability age / `fade_in`. Under a `greedy` policy, where the least loaded
    always wins, with this much of its fair share (by slots): else the ramp would be over at one in so many. The
    oldest one counts as warm, and time stands still until it is: so a whole new route does not fade.
    """
    time = max(now, min(upstream.seen for upstream in upstreams) + fade_in)
    slots = sum(upstream.spec.slots for upstream in upstreams) if greedy else 0
    return tuple(
        upstream
        for upstream in upstreams
        if (chance := _chance(upstream, time, fade_in, slots)) < 1 and rng.random() >= chance
    )


def shares(upstreams: Upstreams, now: float, fade_in: float) -> dict[LiveUpstream, float]:
    """The share, of what it will have, that each of those that fade in has now."""
    time = max(now, min(upstream.seen for upstream in upstreams) + fade_in)
    found = {upstream: _chance(upstream, time, fade_in, 0) for upstream in upstreams}
    return {upstream: share for upstream, share in found.items() if share < 1}


def held_back(returning: Upstreams, all_: Upstreams, now: float, rng: Random, greedy: bool = False) -> Upstreams:
    """Those of `returning`, which are on probation, that this request is not sent to: one at a time until an answer
    proves them, then a share that grows from a tenth."""
    for each in returning:
        each.wanted = True
    slots = sum(upstream.spec.slots for upstream in all_) if greedy else 0
    return tuple(each for each in returning if each.is_probed or (each.proven and _waits(each, now, slots, rng)))


def _waits(upstream: LiveUpstream, now: float, all_slots: int, rng: Random) -> bool:
    grown = _grown(upstream, now)
    return grown < 1 and rng.random() >= grown * (upstream.spec.slots / all_slots if all_slots else 1.0)


def _grown(upstream: LiveUpstream, now: float) -> float:
    if now >= upstream.trusted_at:
        return 1.0
    return max(_FIRST_SHARE, (now - upstream.back_at) / (upstream.trusted_at - upstream.back_at))


def shares_back(returning: Upstreams, now: float) -> dict[LiveUpstream, float]:
    """The share, of what it will have, that each of those on probation has now: nothing but one request at a time
    until an answer proves it."""
    return {each: _grown(each, now) if each.proven else 0.0 for each in returning}


def _chance(upstream: LiveUpstream, time: float, fade_in: float, all_slots: int) -> float:
    if upstream.seen + fade_in <= time:  # not `time - seen`, which rounds otherwise than where `time` came from
        return 1.0
    fair = upstream.spec.slots / all_slots if all_slots else 1.0
    return (time - upstream.seen) / fade_in * fair
