"""Which upstreams of a route may take a request at all."""

from collections.abc import Container, Mapping

from slb.balance.upstream import LiveUpstream
from slb.model import Upstream


def takes_requests(member: str, attributes: Mapping[str, Mapping[str, str]]) -> bool:
    """An upstream marked `drain` keeps what it has and gets nothing new."""
    stored = attributes.get(member)
    return stored is None or not Upstream.of(member, stored).drain


def untried(upstreams: tuple[LiveUpstream, ...], tried: Container[LiveUpstream]) -> tuple[LiveUpstream, ...]:
    """`upstreams` without those this request has already been sent to."""
    return tuple(upstream for upstream in upstreams if upstream not in tried)
