"""When a request leaves an upstream for another: an attempt failed there, or there is no connection left. When it
leaves a connection for another to the same upstream.
"""

from typing import TYPE_CHECKING

from slb.balance.eligible import untried
from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT
from slb.proxy.retry import is_idempotent

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange
    from slb.proxy.plane import Plane
    from slb.proxy.pool import Pool
    from slb.proxy.upstream import UpstreamConnection


def had_been_given_up(exchange: "Exchange", connection: "UpstreamConnection") -> bool:
    """Whether `connection`, which was pooled and has ended without a word, is replaced by a fresh one to the same
    upstream: that was no answer to this request, and no attempt. Where some of the request was sent nobody knows
    better, and it is believed once: else a request that ends every connection would kill each upstream twice."""
    if exchange.reached_client or exchange.status:
        return False
    if connection.unsent:
        return _is_whole(exchange)
    believed, exchange.replaced = not exchange.replaced and may_repeat(exchange), True
    return believed


def may_repeat(exchange: "Exchange") -> bool:
    """Whether the request can be sent once more, and may be."""
    return is_idempotent(exchange.method) and _is_whole(exchange)


def _is_whole(exchange: "Exchange") -> bool:
    """Whether what has been sent of it is still here."""
    return exchange.upload is None or exchange.upload.held is not None


def after_failure(exchange: "Exchange", plane: "Plane", upstream: LiveUpstream, why: str) -> bool:
    """Whether the request goes on to another than `upstream`, where it failed for `why` as its `detail` tells. Not
    where anything of this attempt has reached the client."""
    tried, avoided = (*exchange.tried, upstream), exchange.avoided | {upstream}
    if exchange.status or exchange.reached_client or not plane.retries.has_more(exchange.route, tried, avoided):
        return False
    # A connection that was not made was nobody's work, so that nothing is doubled: that goes by no budget.
    if why != UPSTREAM_CONNECT.name and not plane.retries.affords(exchange.route):
        plane.metrics.retries_refused[why] += 1
        exchange.detail += "; no other is tried: the retry budget is spent"
        return False
    exchange.tried, exchange.avoided = tried, avoided
    exchange.failed = (*exchange.failed, exchange.detail)
    plane.metrics.retries[why] += 1
    exchange.goes_elsewhere(plane.retries.backoff())
    return True


def past_full(exchange: "Exchange", plane: "Plane", pool: "Pool") -> bool:
    """Whether the request goes on to an upstream that has room for a connection, as `pool` has not: that is no
    attempt. Not at once, since whoever gave it the slot that it gives back has not returned yet."""
    serving = exchange.route.serving
    avoided = exchange.avoided.union((pool.upstream,), plane.pools.full(serving))
    if not untried(serving, avoided):
        return False
    exchange.avoided = avoided
    exchange.goes_elsewhere(0.0)
    return True
