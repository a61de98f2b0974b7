"""Requests of slb's own to one upstream, over the connections of its pool: each is sent whole, and its reply
collected whole.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

from slb.errors import (
    OVERLOADED,
    REPLY_TOO_LARGE,
    UPSTREAM_CONNECT,
    UPSTREAM_PROTOCOL,
    UPSTREAM_RESET,
    UPSTREAM_TIMEOUT,
    Reason,
    SlbError,
)
from slb.upstreams import fields
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.deadlines import TICK
from slb.upstreams.pool import ConnectFailed, Pool
from slb.upstreams.replies import MAX_INTERIMS, ReplyHead

_START = re.compile(rb"(?!CONNECT )[!#$%&'*+\-.^_`|~0-9A-Za-z]++ /[\x21\x22\x24-\x7e]*+")
_LINES = fields.Lines()
_NOT_THE_CALLERS = frozenset(
    {
        fields.CODING,
        fields.CONNECTION,
        fields.EXPECT,
        fields.HOP,
        fields.HOST,
        fields.LENGTH,
        fields.SHADOW,
        fields.TE,
        fields.TRAILER,
        fields.UPGRADE,
    }
)
_WITHOUT_LENGTH = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE"})
"""Where there is no body (RFC 9110, 8.6)."""


class CallFailed(SlbError):
    """No whole reply. `reason` is one of UPSTREAM_CONNECT, UPSTREAM_RESET, UPSTREAM_PROTOCOL, UPSTREAM_TIMEOUT,
    REPLY_TOO_LARGE, and of slb's own OVERLOADED and INTERNAL; `detail` names the upstream. `sent`: some of the
    request may have been written; `partial`: something of a reply has come. `refused`: nothing listens there."""

    def __init__(
        self, reason: Reason, detail: str, sent: bool = True, partial: bool = False, refused: bool = False
    ) -> None:
        super().__init__(f"{reason.name}: {detail}")
        self.reason = reason
        self.detail = detail
        self.sent = sent
        self.partial = partial
        self.refused = refused


class Reply:
    """A whole reply. `body` is decoded from its framing, not from its Content-Encoding; trailers are dropped."""

    __slots__ = ("_head", "body", "status")

    def __init__(self, head: ReplyHead, body: bytes) -> None:
        self._head: Final = head
        self.status: Final = head.status
        self.body: Final = body

    def header(self, name: str) -> str:
        """The first value of a header; empty where there is none."""
        return fields.field_value(self._head.start, name)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names as the upstream wrote them, and values; without those of the connection."""
        lines = self._head.start.decode("latin-1").split("\r\n")[1:-2]  # the last one is slb's Via
        return [(name, value.strip(" \t")) for name, _, value in (line.partition(":") for line in lines)]


async def call(
    pool: Pool,
    method: bytes,
    target: bytes,
    lines: Iterable[bytes] = (),
    body: bytes = b"",
    *,
    timeout: float,
    connect_timeout: float,
    most_bytes: int,
    idempotent: bool = False,
) -> Reply:
    """Send one request to the upstream of `pool`, and wait for all of its reply, whatever its status. Cancelled, it
    closes the connection.

    `target`: path and query; `lines`: header fields without CRLF, but for Host and those of framing and connection,
    which are written here. `timeout`: seconds for all of it, of which a new connection may take `connect_timeout`.
    `most_bytes`: of the reply's body. A pooled connection may turn out to have been closed by the upstream: then
    the request is sent once more, on a new one, where nothing of it was written, or it is `idempotent`.

    Raises CallFailed, and ValueError for what cannot be sent.
    """
    message = _message(pool, method, target, lines, body)
    due = pool.wheel.now() + timeout
    to_head = method == b"HEAD"
    sent = False
    if (connection := pool.take()) is not None:
        try:
            return await _carried(connection, message, due, to_head, most_bytes)
        except CallFailed as failure:
            if failure.reason is not UPSTREAM_RESET or failure.partial or (failure.sent and not idempotent):
                raise
            sent = failure.sent
    connection = await _connected(pool, connect_timeout, due, sent)
    return await _carried(connection, message, due, to_head, most_bytes)


def _message(pool: Pool, method: bytes, target: bytes, lines: Iterable[bytes], body: bytes) -> bytes:
    """Raises ValueError: whatever a target or a header is made from, it is one request that is sent."""
    start = b"%b %b" % (method, target)
    if not _START.fullmatch(start):
        raise ValueError("not a method and a path")
    own = b"" if not body and method in _WITHOUT_LENGTH else b"Content-Length: %d\r\n" % len(body)
    block = b"".join([_checked(line) + b"\r\n" for line in lines])
    return b"%b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n%b" % (
        start,
        pool.upstream.spec.authority.encode(),
        block,
        own,
        body,
    )


def _checked(line: bytes) -> bytes:
    if _LINES[line][0] in _NOT_THE_CALLERS:  # MalformedField is a ValueError
        raise ValueError("a header that is not the caller's to write")
    return line


async def _connected(pool: Pool, connect_timeout: float, due: float, sent: bool) -> UpstreamConnection:
    """A new connection. `sent`: of the request, on another one before. Raises CallFailed."""
    member = pool.upstream.member
    if pool.is_full:
        raise CallFailed(OVERLOADED, f"{member} has all the connections it may have", sent)
    pool.reserve()
    try:
        return await pool.connect(max(0.0, min(connect_timeout, due - pool.wheel.now())))
    except ConnectFailed as error:
        late = error.ours is None and pool.wheel.now() >= due - TICK  # the event loop's clock is a little behind
        reason = UPSTREAM_TIMEOUT if late else error.ours or UPSTREAM_CONNECT
        raise CallFailed(reason, str(error), sent, refused=error.refused) from None


async def _carried(
    connection: UpstreamConnection, message: bytes, due: float, to_head: bool, most_bytes: int
) -> Reply:
    exchange = _Exchange(connection, most_bytes)
    try:
        connection.carry(exchange, message, True, due, to_head)
        outcome = await exchange.outcome
    finally:
        exchange.leave()
    if isinstance(outcome, CallFailed):
        raise outcome
    return outcome


class _Exchange:
    """What the connection carries (`Carried`). `outcome`: the reply, or why there is none. The connection is this
    one's until then."""

    __slots__ = ("_connection", "_head", "_interims", "_most", "_pieces", "_size", "outcome")

    def __init__(self, connection: UpstreamConnection, most: int) -> None:
        self._connection: UpstreamConnection | None = connection
        self._most = most
        self._head: ReplyHead | None = None
        self._interims = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self.outcome: asyncio.Future[Reply | CallFailed] = asyncio.get_running_loop().create_future()

    def leave(self) -> None:
        """Whoever waited for the reply waits no more: a connection that is still at it serves no other."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    # -- the connection calls

    def reply_begins(self, head: ReplyHead, payload: bytes, ended: bool) -> None:
        self._head = head
        if head.length > self._most and not ended:
            self._fail(REPLY_TOO_LARGE, f" announces {head.length} bytes, more than {self._most}")
        else:
            self.reply_continues(payload, ended)

    def reply_continues(self, payload: bytes, ended: bool) -> None:
        self._size += len(payload)
        self._pieces.append(payload)
        if self._size > self._most:
            self._fail(REPLY_TOO_LARGE, f" sends more than {self._most} bytes")
        elif ended:
            connection, self._connection = self._connection, None
            head = self._head
            assert connection is not None
            assert head is not None
            connection.reply_ended(head.keep_alive, connection.pool.wheel.now())
            self._settle(Reply(head, b"".join(self._pieces)))

    def interim(self, head: ReplyHead) -> bool:
        self._interims += 1
        return self._interims < MAX_INTERIMS

    def switches(self, head: ReplyHead, rest: bytes) -> bool:
        return False

    def reply_malformed(self, why: str, blame: bool = True) -> None:
        self._fail(UPSTREAM_PROTOCOL, f": {why}", partial=True)

    def reply_late(self) -> None:
        self._fail(UPSTREAM_TIMEOUT, " did not answer in time")

    def upstream_lost(self, clean: bool, partial: bool) -> None:
        connection, head = self._connection, self._head
        assert connection is not None
        if head is not None and clean and connection.ends_with_connection:
            self._connection = None
            self._settle(Reply(head, b"".join(self._pieces)))
        else:
            self._fail(UPSTREAM_RESET, " closed the connection", not connection.unsent, partial)

    def client_holds_back(self) -> None:
        """There is no client."""

    def upload_is_held_back(self, held: bool) -> None:
        """The transport has all of the body."""

    def _fail(self, reason: Reason, what: str, sent: bool = True, partial: bool = False) -> None:
        connection = self._connection
        assert connection is not None
        partial = partial or self._head is not None or self._interims > 0
        self._settle(CallFailed(reason, f"{connection.destination}{what}", sent, partial))
        self.leave()

    def _settle(self, outcome: Reply | CallFailed) -> None:
        if not self.outcome.done():  # else the caller has just been cancelled
            self.outcome.set_result(outcome)
