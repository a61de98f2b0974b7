"""What the next pick of a policy goes by, for people who ask why a request goes where it goes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from slb.balance.upstream import LiveUpstream

_NO_NOTES: Mapping[LiveUpstream, str] = {}


class Standing(NamedTuple):
    """As things are; to make one changes nothing. `by`: in words, what `scores` are and which wins; `ranked`: the
    order in which the policy prefers them, empty where chance decides; `passed`: upstreams that `pick` would not
    take though they are preferred, and why."""

    by: str
    scores: Mapping[LiveUpstream, float]
    ranked: Sequence[LiveUpstream]
    passed: Mapping[LiveUpstream, str] = _NO_NOTES


def per_slot(upstream: LiveUpstream) -> float:
    """Requests in flight here for each slot."""
    return round(upstream.inflight / upstream.spec.slots, 3)


def least_of(by: str, upstreams: Sequence[LiveUpstream], score: Callable[[LiveUpstream], float]) -> Standing:
    """The standing where the least score wins, of equals the first."""
    scores = {each: score(each) for each in upstreams}
    return Standing(by, scores, sorted(upstreams, key=scores.__getitem__))


def drawn_by(by: str, upstreams: Sequence[LiveUpstream], score: Callable[[LiveUpstream], float]) -> Standing:
    """The standing where chance decides between several."""
    return Standing(by, {each: score(each) for each in upstreams}, upstreams if len(upstreams) == 1 else ())
