"""What a reply says of the upstream that Envoy sent the request to, and of those where an attempt of its failed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from slb.balance.judge import BUSY, is_failure
from slb.balance.upstream import LiveUpstream
from slb.errors import UPSTREAM_CONNECT, UPSTREAM_PROTOCOL, UPSTREAM_RESET, UPSTREAM_TIMEOUT
from slb.extproc.request import Reply

_BY_UPSTREAM = ("", "via_upstream")
"""Who made a reply, by Envoy's `response.code_details`: the upstream; or Envoy does not say."""
_RESET = "upstream_reset_before_response_started"
_LATE = frozenset({"response_timeout", "upstream_response_timeout", "upstream_per_try_timeout"})
_NO_CONNECTION = ("connection_failure", "connection_timeout")
_REFUSED = "Connection_refused"
_UNREADABLE = "protocol_error"


class Verdict(NamedTuple):
    """`why`: the name of the failure at the upstream, empty where there is none. `is_served`: it has answered.
    `is_refused`: it has refused the connection; `is_status`: the failure is its reply's status. None of them: Envoy
    itself has answered."""

    why: str = ""
    is_served: bool = False
    is_refused: bool = False
    is_status: bool = False


def judged(reply: Reply) -> Verdict:
    details = reply.details
    if details in _BY_UPSTREAM:
        if reply.status in BUSY or is_failure(reply.status):
            return Verdict(str(reply.status), is_status=True)
        return Verdict(is_served=reply.status > 0)
    if details in _LATE:
        return Verdict(UPSTREAM_TIMEOUT.name)
    if not details.startswith(_RESET):
        return Verdict()
    if any(each in details for each in _NO_CONNECTION):
        return Verdict(UPSTREAM_CONNECT.name, is_refused=_REFUSED in details)
    return Verdict(UPSTREAM_PROTOCOL.name if _UNREADABLE in details else UPSTREAM_RESET.name)


def speaks_broken_off(status: int) -> bool:
    """Whether a reply of this status that breaks off speaks against its upstream. One of 400 and above a client can
    cause as often as it likes, or it has counted as a failure; a tunnel (101) may end so."""
    return 200 <= status < 400


def failed_before(
    tried: Sequence[LiveUpstream], reply: Reply, address_of: Callable[[LiveUpstream], str]
) -> Sequence[LiveUpstream]:
    """Those of `tried` (in Envoy's order) at which an attempt has failed before the one that `served`. None where
    there were fewer attempts than that takes: then Envoy does not know some of them, and has passed them over."""
    addresses = [address_of(each) for each in tried]
    before = tried[: addresses.index(reply.served)] if reply.served in addresses else tried
    return tuple(dict.fromkeys(before)) if reply.attempts > len(before) else ()
