"""One request and its reply: from the route to the release of the slot.

An exchange begins with a head that was accepted and ends exactly once, in `_end`: when the reply's body has ended,
when it failed, or when the client left. All waiting is in callbacks; on the way without a new connection nothing
awaits.
"""

import asyncio
import math
from typing import TYPE_CHECKING

from slb.balance.eligible import untried
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import (
    CLIENT_GONE,
    NO_UPSTREAM,
    REQUEST_TIMEOUT,
    UPSTREAM_CONNECT,
    UPSTREAM_PROTOCOL,
    UPSTREAM_RESET,
    UPSTREAM_TIMEOUT,
    Reason,
)
from slb.proxy.body import CHUNKED, LAST_CHUNK, chunk
from slb.proxy.deadlines import Timed
from slb.proxy.headers import ReplyHead, RequestHead
from slb.proxy.plane import Plane
from slb.proxy.retry import is_idempotent
from slb.proxy.target import RequestLine
from slb.proxy.upstream import ConnectFailed, Pool, UpstreamConnection
from slb.routing.table import Route

if TYPE_CHECKING:
    from slb.proxy.downstream import Downstream

NEVER = math.inf
_HELD_BODY = 64 * 1024
"""Bytes of request body kept while a connection is made, or in case they must be sent again."""


class Exchange(Timed):
    """`client` is the connection the request came on; `line.route` has been found, nothing picked yet.

    What is below `__init__` differs from its default in few exchanges, and most of them never set it.
    """

    connection: UpstreamConnection | None = None
    status = 0
    bytes_in = 0
    bytes_out = 0
    _handle: Handle | None = None
    _tried: tuple[LiveUpstream, ...] = ()
    _held: bytes | None = b""
    _connecting: asyncio.Task[None] | None = None
    _request_ended = False
    _keep_client = True
    _chunks_reply = False
    _reply_keep_alive = False
    _first_byte_at = 0.0
    _over = False
    _slot = -1
    _looked_at = NEVER

    def __init__(
        self, plane: Plane, client: "Downstream", line: RequestLine, route: Route, head: RequestHead, started: float
    ) -> None:
        self._plane = plane
        self.client = client
        self.line = line
        self.method = line.method
        self.route = route
        self.head = head
        self.started = started
        self.request_id = head.request_id or plane.new_request_id()

    # -- towards the upstream

    def begin(self, payload: bytes, ended: bool) -> None:
        """Send the request on its way. `payload` is what has come of its body, `ended` whether that is all."""
        if self.route.settings.request_timeout:
            self._plane.wheel.arm(self, self.started + self.route.settings.request_timeout)
        self._request_ended = ended
        if self.head.length:
            self._held = self._framed(payload, ended)
        self._attempt()

    def _framed(self, payload: bytes, ended: bool) -> bytes:
        self.bytes_in += len(payload)
        if self.head.length != CHUNKED:
            return payload
        return (chunk(payload) if payload else b"") + (LAST_CHUNK if ended else b"")

    def _attempt(self) -> None:
        upstreams = self.route.upstreams
        if self._tried:
            upstreams = untried(upstreams, self._tried)
        if not upstreams:
            self._refuse(NO_UPSTREAM, f"{self.route.path} has no upstream that takes requests")
            return
        upstream = self.route.policy.pick(upstreams)
        self._handle = Handle(upstream)
        pool = self._plane.pools.of(upstream)
        connection = pool.take()
        if connection is not None:
            self._send(connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(pool))

    async def _connect(self, pool: Pool) -> None:
        try:
            connection = await pool.connect(self.route.settings.connect_timeout)
        except ConnectFailed as error:
            if not self._over:
                self._connecting = None
                self._connect_failed(pool.upstream, str(error))
            return
        if self._over:
            pool.put(connection, self._plane.clock())
        else:
            self._connecting = None
            self._send(connection)

    def _connect_failed(self, upstream: LiveUpstream, why: str) -> None:
        """Nothing was sent, so any method may go to another upstream, as often as the route allows."""
        self._tried = (*self._tried, upstream)
        others = untried(self.route.upstreams, self._tried)
        if others and len(self._tried) <= self.route.settings.retries:
            self._plane.metrics.retries[UPSTREAM_CONNECT.name] += 1
            self._release()
            self._attempt()
        else:
            self._refuse(UPSTREAM_CONNECT, why)

    def _send(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        data = self._request_head()
        if self.head.length:
            data += self._held or b""
            if not self._request_ended or len(data) > _HELD_BODY:
                self._held = None
            self.client.upload_may_go_on()
        connection.carry(self, data, self._plane.clock() + self.route.settings.first_byte_timeout)

    def _request_head(self) -> bytes:
        line, head = self.line, self.head
        return b"%b %b HTTP/1.1\r\n%b%b%b%b%b\r\n" % (
            line.method,
            line.forwarded_target,
            b"" if head.host is not None else self._own_host(),
            head.fields,
            self.client.forwarded_by(head),
            b"" if head.request_id else b"X-Request-Id: %b\r\n" % self.request_id,
            self._plane.own_line[line.minor],
        )

    def _own_host(self) -> bytes:
        """HTTP/1.0 clients may leave it out, HTTP/1.1 upstreams may not be left without."""
        assert self._handle is not None
        return b"Host: %b\r\n" % self._handle.upstream.spec.authority.encode()

    def body_arrives(self, payload: bytes, ended: bool) -> None:
        """More of the request's body."""
        self._request_ended = ended
        framed = self._framed(payload, ended)
        if self.connection is not None:
            if framed:
                self.connection.transport.write(framed)
                due = self._plane.clock() + self.route.settings.first_byte_timeout
                self._plane.wheel.arm(self.connection, due)
            return
        self._held = (self._held or b"") + framed
        if len(self._held) > _HELD_BODY:
            self.client.hold_upload()

    def upload_held(self, held: bool) -> None:
        """The upstream takes (`held` False) or does not take more of the body for now."""
        if held:
            self.client.hold_upload()
        else:
            self.client.upload_may_go_on()

    # -- towards the client

    def interim(self, head: ReplyHead) -> None:
        """A 1xx reply, for clients that know them."""
        if self.line.minor == 1:
            self.client.transport.write(head.start + b"\r\n")

    def reply_begins(self, connection: UpstreamConnection, head: ReplyHead, payload: bytes, ended: bool) -> None:
        """The final head and what came of the body with it; one write, so that small replies are one packet."""
        now = self._first_byte_at = self._plane.clock()
        self.status = head.status
        self._reply_keep_alive = head.keep_alive
        if not ended or head.length < 0:
            self._choose_framing(head)
        if self._plane.draining or (head.status >= 400 and not self._request_ended):
            self._keep_client = False
        start = b"%bX-Request-Id: %b\r\n%b%b\r\n" % (
            head.start,
            self.request_id,
            b"Transfer-Encoding: chunked\r\n" if self._chunks_reply else b"",
            self.client.connection_line(self.line, self.head, self._keep_client),
        )
        self._pass_on(connection, start, payload, ended, now)

    def _choose_framing(self, head: ReplyHead) -> None:
        """How the client learns where a reply of unknown length ends."""
        if head.length < 0 and self.method != b"HEAD":
            if self.line.minor == 1:
                self._chunks_reply = True
            else:
                self._keep_client = False

    def reply_continues(self, connection: UpstreamConnection, payload: bytes, ended: bool) -> None:
        """More of the reply's body."""
        self._pass_on(connection, b"", payload, ended, self._plane.clock())

    def _pass_on(
        self, connection: UpstreamConnection, start: bytes, payload: bytes, ended: bool, now: float
    ) -> None:
        self.bytes_out += len(payload)
        if self._chunks_reply:
            payload = (chunk(payload) if payload else b"") + (LAST_CHUNK if ended else b"")
        self.client.transport.write(start + payload if start else payload)
        if ended:
            self.connection = None
            request_ended = self._request_ended
            connection.reply_ended(request_ended and self._reply_keep_alive, now)
            self._end(self.status, None, "", now)
            self.client.exchange_ended(self, self._keep_client and request_ended, request_ended, now)
        else:
            self._plane.wheel.arm(connection, now + self.route.settings.idle_timeout)
            if self.client.is_stalled:
                connection.pause_reading()

    # -- what goes wrong

    def upstream_lost(self, connection: UpstreamConnection, clean: bool, heard: bool) -> None:
        """The connection ended under this exchange. `heard`: some of a reply's head had come."""
        if self.connection is not connection:
            return
        self.connection = None
        if self.status and clean and connection.ends_with_connection:
            if self._chunks_reply:
                self.client.transport.write(LAST_CHUNK)
            now, request_ended = self._plane.clock(), self._request_ended
            self._end(self.status, None, "", now)
            self.client.exchange_ended(self, self._keep_client and request_ended, request_ended, now)
        elif not self.status and not heard and connection.used and self._may_send_again():
            self._release()
            self._handle = Handle(connection.pool.upstream)
            self._connecting = asyncio.get_running_loop().create_task(self._connect(connection.pool))
        else:
            self._fail(UPSTREAM_RESET, f"{connection.pool.upstream.member} closed the connection")

    def _may_send_again(self) -> bool:
        """A pooled connection the upstream had given up: no answer to this request, and no attempt of its own."""
        return is_idempotent(self.method) and self._held is not None

    def reply_malformed(self, connection: UpstreamConnection, why: str) -> None:
        """What the upstream sent is not HTTP/1.1."""
        self._fail(UPSTREAM_PROTOCOL, f"{connection.pool.upstream.member}: {why}")

    def reply_late(self, connection: UpstreamConnection) -> None:
        """Neither first byte nor further bytes in time, unless the client is the one who is slow."""
        waits_for_client = not self._request_ended and not self.client.upload_is_held
        if self.client.is_stalled or waits_for_client:
            self._plane.wheel.arm(connection, self._plane.clock() + self.route.settings.idle_timeout)
        else:
            self._fail(UPSTREAM_TIMEOUT, f"{connection.pool.upstream.member} did not answer in time")

    def expired(self) -> None:
        """The whole request took longer than request_timeout."""
        self._fail(UPSTREAM_TIMEOUT, f"the request took longer than {self.route.settings.request_timeout:g} s")

    def client_late(self) -> None:
        """The client did not send its body, or did not read its reply, in time."""
        self._fail(REQUEST_TIMEOUT, "the request's body did not come in time")

    def request_malformed(self, reason: Reason, detail: str) -> None:
        """The body's framing broke after the head was passed on."""
        self._fail(reason, detail)

    def client_lost(self) -> None:
        """The client left: its upstream stops working for it now."""
        self._plane.metrics.client_disconnects += 1
        self._drop_connection()
        self._end(CLIENT_GONE.status, CLIENT_GONE, "", self._plane.clock())

    def _fail(self, reason: Reason, detail: str) -> None:
        self._drop_connection()
        if self.status:
            self._end(self.status, reason, detail, self._plane.clock())
            self.client.reply_broken()
        else:
            self._refuse(reason, detail)

    def _refuse(self, reason: Reason, detail: str) -> None:
        self._drop_connection()
        request_ended = self._request_ended
        self._end(reason.status, reason, detail, self._plane.clock())
        self.client.refuse(reason, detail, self.request_id, self.line, self.head, request_ended)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()

    # -- the end

    def _release(self) -> None:
        if self._handle is not None:
            self._handle.release()
            self._handle = None

    def _end(self, status: int, reason: Reason | None, detail: str, now: float) -> None:
        """Give the slot back, count, log. The first call is the only one that does anything."""
        if self._over:
            return
        self._over = True
        plane, handle = self._plane, self._handle
        if self._slot >= 0:
            plane.wheel.forget(self)
        member = ""
        if handle is not None:
            member = handle.upstream.member
            handle.release()
        name = reason.name if reason is not None else ""
        plane.metrics.request_ended(self.route.path, member, status, name, self.started, self._first_byte_at, now)
        if plane.access_log.wants(status, name):
            self._log(status, name, member, now, detail)

    def _log(self, status: int, reason: str, member: str, now: float, detail: str) -> None:
        first_byte = self._first_byte_at - self.started if self._first_byte_at else None
        self._plane.access_log.write(
            method=self.method.decode(),
            path=self.line.path.decode("latin-1"),
            status=status,
            reason=reason,
            detail=detail,
            route=self.route.path,
            upstream=member,
            attempts=len(self._tried) + 1,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            first_byte=first_byte,
            duration=now - self.started,
            client=self.client.peer,
            request_id=self.request_id.decode(),
        )
