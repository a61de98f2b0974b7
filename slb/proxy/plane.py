"""What all connections of one instance share: the parts, and the little state that is not a connection's own."""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from slb.addresses import AddressRules
from slb.admission.entry import Entry
from slb.admission.gates import Gates
from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.places import Places
from slb.proxy.deadlines import Wheel
from slb.proxy.disconnect_watcher import DisconnectWatcher
from slb.proxy.head_cache import HeadCache
from slb.proxy.outbox import Outbox
from slb.proxy.reader import RequestReader
from slb.proxy.replies import parse_reply
from slb.proxy.retry import Retries
from slb.proxy.target import RequestLines
from slb.routing.mirror import Mirror

if TYPE_CHECKING:
    from slb.proxy.downstream import Downstream
    from slb.proxy.exchange import Exchange
    from slb.proxy.pool import Pools

Handover = Callable[[], asyncio.Protocol]
"""Makes the protocol by which the applications behind the data listener serve one connection."""


class Plane:
    """Made once per instance. `via` is this instance's name in Via: a request that carries it has looped."""

    def __init__(
        self,
        settings: Settings,
        mirror: Mirror,
        metrics: Metrics,
        access_log: AccessLog,
        address_rules: AddressRules,
        handover: Handover,
        gates: Gates,
        rng: Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mirror = mirror
        self.metrics = metrics
        self.access_log = access_log
        self.address_rules = address_rules
        self.handover = handover
        self.gates = gates
        self.rng = rng
        self.clock = clock
        self.wheel = Wheel(clock)
        self.outbox = Outbox()
        self.disconnects = DisconnectWatcher(self.wheel)
        self.lines = RequestLines(mirror)
        self._request_prefix = b"%020x" % rng.getrandbits(80)
        self._request_number = 0
        self.via = b"slb-%08x" % rng.getrandbits(32)
        self.own_line = {minor: b"Via: 1.%d %b\r\n" % (minor, self.via) for minor in (0, 1)}
        self.reply_heads = HeadCache(parse_reply)
        self.retries = Retries(metrics.traffic.finished, clock, rng)
        self.on_failure: Callable[[LiveUpstream, str], None] = lambda upstream, reason: None
        self.on_refusal: Callable[[LiveUpstream], None] = lambda upstream: None
        self.places: Places[Downstream] = Places()
        self.connections = self.places.taken
        self.draining = False
        self.drained = asyncio.Event()
        self.pools: Pools
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Let these hold, of what is each connection's own for those that come from now on."""
        self.settings = settings
        self.tells_all = settings.client_detail == "full"
        most = settings.max_connections
        self.places.set_limits(most, settings.max_connections_per_peer, most)
        self.keepalive_timeout = settings.keepalive_timeout
        self.max_requests = settings.max_requests_per_connection
        self.readers = [RequestReader(settings, self.lines, self.via, trusted) for trusted in (False, True)]
        self.reserved = _reserved(settings.data_register)

    def connection_ended(self, connection: "Downstream") -> None:
        """The last one to leave while draining ends the wait for it."""
        if self.places.leave(connection) and self.draining and not self.connections:
            self.drained.set()

    def new_request_id(self) -> bytes:
        """32 hexadecimal digits, unlike those of any other process; within one they count up."""
        self._request_number += 1
        return b"%b%012x" % (self._request_prefix, self._request_number)

    def new_trace(self, request_id: bytes) -> bytes:
        """A traceparent line (W3C Trace Context), sampled: nobody before has decided otherwise. `request_id` is one
        of `new_request_id`: it is the trace's id too, so that logs and traces find each other."""
        return b"traceparent: 00-%b-%016x-01\r\n" % (request_id, self._request_number)

    def log_exchange(self, exchange: "Exchange", status: int, reason: str, detail: str, now: float) -> None:
        """One line of the access log. Times are seconds; `owed`: bytes missing of a reply of known length;
        `queued` and `position` stand there where it had to queue, `failed` where an attempt before failed."""
        upstream = exchange.handle.upstream if exchange.handle is not None else None
        first_byte = exchange.first_byte_at - exchange.started if exchange.first_byte_at else None
        connection = exchange.connection
        self.access_log.write(
            reached=upstream is not None,
            method=exchange.method.decode(),
            path=exchange.line.path.decode(),
            status=status,
            reason=reason,
            detail=detail,
            route=exchange.route.path,
            upstream=upstream.member if upstream is not None else "",
            node=upstream.spec.node if upstream is not None else "",
            attempts=len(exchange.tried) + 1,
            bytes_in=exchange.bytes_in,
            bytes_out=exchange.bytes_out,
            owed=connection.owed if connection is not None else 0,
            first_byte=first_byte,
            duration=now - exchange.started,
            client=exchange.client.peer.address,
            request_id=exchange.request_id.decode(),
            **_queueing(exchange.entry),
            **({"failed": exchange.failed} if exchange.failed else {}),
        )


def _queueing(entry: Entry | None) -> dict[str, float]:
    """Of a request that had to queue, how long and behind how many of its class."""
    if entry is None or entry.position is None:
        return {}
    return {"queued": entry.waited, "position": entry.position}


def _reserved(register: bool) -> dict[bytes, frozenset[bytes]]:
    """Path as written -> methods that are the applications', not an upstream's. Other spellings are not: the
    applications would not know them."""
    probes = frozenset({b"GET", b"HEAD"})
    paths = {b"/_slb/healthz": probes, b"/_slb/readyz": probes}
    if register:
        paths[b"/register"] = frozenset({b"POST", b"DELETE"})
    return paths
