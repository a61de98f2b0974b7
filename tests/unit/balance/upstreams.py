"""Upstreams for the tests of policies."""

from slb.balance.upstream import ALWAYS, LiveUpstream
from slb.model import Upstream


def upstream(name: str, weight: int = 1, slots: int = 1, inflight: int = 0, seen: float = ALWAYS) -> LiveUpstream:
    """The upstream `name:80`."""
    live = LiveUpstream(Upstream.of(f"{name}:80", {"weight": str(weight), "slots": str(slots)}), seen)
    live.inflight = inflight
    return live


def upstreams(names: str) -> tuple[LiveUpstream, ...]:
    """One for each letter."""
    return tuple(map(upstream, names))


def name(live: LiveUpstream) -> str:
    return live.member.removesuffix(":80")
