"""The line of the access log that an exchange leaves."""

from typing import Protocol

from slb.admission.entry import Entry
from slb.balance.upstream import Handle
from slb.observe.log import AccessLog
from slb.proxy.request import Request
from slb.proxy.retry import Tried


class Owing(Protocol):
    """An upstream's connection."""

    @property
    def owed(self) -> int:
        """Bytes missing of a reply of known length."""


class Ended(Protocol):
    """An exchange that has ended, as far as the log goes. Times are seconds."""

    @property
    def request(self) -> Request: ...
    @property
    def handle(self) -> Handle | None: ...
    @property
    def connection(self) -> Owing | None: ...
    @property
    def entry(self) -> Entry | None: ...
    @property
    def tried(self) -> Tried: ...
    @property
    def started(self) -> float: ...
    @property
    def first_byte_at(self) -> float: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...


def log_exchange(log: AccessLog, exchange: Ended, status: int, reason: str, detail: str, now: float) -> None:
    """Write one line. `queued` and `position` stand there where it had to queue, `failed` where an attempt before
    failed."""
    request, connection, failures = exchange.request, exchange.connection, exchange.tried.failures
    upstream = exchange.handle.upstream if exchange.handle is not None else None
    log.write(
        reached=upstream is not None,
        method=request.line.method.decode(),
        path=request.line.path.decode(),
        status=status,
        reason=reason,
        detail=detail,
        route=request.route.path,
        upstream=upstream.member if upstream is not None else "",
        node=upstream.spec.node if upstream is not None else "",
        attempts=len(exchange.tried.upstreams) + 1,
        bytes_in=exchange.bytes_in,
        bytes_out=exchange.bytes_out,
        owed=connection.owed if connection is not None else 0,
        first_byte=exchange.first_byte_at - exchange.started if exchange.first_byte_at else None,
        duration=now - exchange.started,
        client=request.peer.address,
        request_id=request.id.decode(),
        **_queueing(exchange.entry),
        **({"failed": failures} if failures else {}),
    )


def _queueing(entry: Entry | None) -> dict[str, float]:
    """Of a request that had to queue, how long and behind how many of its class."""
    if entry is None or entry.position is None:
        return {}
    return {"queued": entry.waited, "position": entry.position}
