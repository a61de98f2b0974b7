"""One request and its reply: from the route to the release of the slot.

An exchange begins with a head that was accepted and ends exactly once, in `_end`: when the reply's body has ended,
when it failed, or when the client left. All waiting is in callbacks; on the way without a new connection nothing
awaits.
"""

import asyncio
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
from slb.proxy.body import CHUNKED, LAST_CHUNK, UNTIL_CLOSE, chunk
from slb.proxy.deadlines import Timed
from slb.proxy.headers import ReplyHead, RequestHead
from slb.proxy.plane import Plane
from slb.proxy.retry import is_idempotent
from slb.proxy.target import RequestLine
from slb.proxy.upstream import ConnectFailed, Pool, UpstreamConnection
from slb.routing.table import Route

if TYPE_CHECKING:
    from slb.proxy.downstream import Downstream

_HELD_BODY = 64 * 1024
"""Bytes of request body kept while a connection is made, or in case they must be sent again."""


class Exchange(Timed):
    """`client` is the connection the request came on; `route` has been found, nothing picked yet."""

    __slots__ = (
        "_chunks_reply",
        "_connecting",
        "_first_byte_at",
        "_handle",
        "_head_sent",
        "_held",
        "_keep_client",
        "_over",
        "_plane",
        "_reply_keep_alive",
        "_request_ended",
        "_tried",
        "_wire",
        "bytes_in",
        "bytes_out",
        "client",
        "connection",
        "head",
        "line",
        "method",
        "request_id",
        "route",
        "started",
        "status",
    )

    def __init__(
        self,
        plane: Plane,
        client: "Downstream",
        line: RequestLine,
        head: RequestHead,
        request_id: str,
        route: Route,
    ) -> None:
        self.due = _NEVER
        self._slot = -1
        self._plane = plane
        self.client = client
        self.line = line
        self.method = line.method
        self.head = head
        self.request_id = request_id
        self.route = route
        self.started = plane.clock()
        self.connection: UpstreamConnection | None = None
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._handle: Handle | None = None
        self._tried: list[LiveUpstream] = []
        self._wire = b""
        self._held: bytes | None = b""
        self._request_ended = False
        self._head_sent = False
        self._connecting: asyncio.Task[None] | None = None
        self._keep_client = True
        self._reply_keep_alive = False
        self._chunks_reply = False
        self._first_byte_at = 0.0
        self._over = False

    # -- towards the upstream

    def begin(self, payload: bytes, ended: bool) -> None:
        """Send the request on its way. `payload` is what has come of its body, `ended` whether that is all."""
        if self.route.settings.request_timeout:
            self._plane.wheel.arm(self, self.route.settings.request_timeout)
        self._request_ended = ended
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
            pool.put(connection)
        else:
            self._connecting = None
            self._send(connection)

    def _connect_failed(self, upstream: LiveUpstream, why: str) -> None:
        """Nothing was sent, so any method may go to another upstream, as often as the route allows."""
        self._tried.append(upstream)
        others = untried(self.route.upstreams, self._tried)
        if others and len(self._tried) <= self.route.settings.retries:
            self._plane.metrics.retries[UPSTREAM_CONNECT.name] += 1
            self._release()
            self._attempt()
        else:
            self._refuse(UPSTREAM_CONNECT, why)

    def _send(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        held = self._held or b""
        if len(held) > _HELD_BODY or not self._request_ended:
            self._held = None
        self._head_sent = True
        connection.carry(self, self._request_head() + held, self.route.settings.first_byte_timeout)
        self.client.upload_may_go_on()

    def _request_head(self) -> bytes:
        line, head, plane = self.line, self.head, self._plane
        host = b""
        if head.host is None:
            assert self._handle is not None
            host = b"Host: %b\r\n" % self._handle.upstream.spec.authority.encode()
        request_id = b"" if head.request_id else b"X-Request-Id: %b\r\n" % self.request_id.encode()
        target = self._target()
        return b"%b %b%b HTTP/1.1\r\n%b%b%b%b%b\r\n" % (
            line.method,
            target,
            line.query,
            host,
            head.fields,
            self.client.forwarded_by(head),
            request_id,
            plane.own_line[line.minor],
        )

    def _target(self) -> bytes:
        if not self.route.settings.strip_prefix or self.route.path == "/":
            return self.line.path
        return self.line.stripped(self.route.path)

    def body_arrives(self, payload: bytes, ended: bool) -> None:
        """More of the request's body."""
        self._request_ended = ended
        framed = self._framed(payload, ended)
        if self.connection is not None:
            if framed:
                self.connection.transport.write(framed)
                self._plane.wheel.arm(self.connection, self.route.settings.first_byte_timeout)
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
        self._first_byte_at = self._plane.clock()
        self.status = head.status
        self._reply_keep_alive = head.keep_alive
        lines = self._reply_lines(head, ended)
        data = b"%bX-Request-Id: %b\r\n%b\r\n" % (head.start, self.request_id.encode("latin-1"), lines)
        self._pass_on(connection, data, payload, ended)

    def _reply_lines(self, head: ReplyHead, ended: bool) -> bytes:
        """The lines about framing and connection that are this hop's own."""
        lines = b""
        bodiless = self.method == b"HEAD" or head.status in (204, 304)
        if not bodiless and head.length in (CHUNKED, UNTIL_CLOSE):
            if self.line.minor == 1:
                self._chunks_reply = True
                lines = b"Transfer-Encoding: chunked\r\n"
            else:
                self._keep_client = False
        if self._plane.draining or (not self._request_ended and head.status >= 400):
            self._keep_client = False
        return lines + self.client.connection_line(self.line, self.head, self._keep_client)

    def reply_continues(self, connection: UpstreamConnection, payload: bytes, ended: bool) -> None:
        """More of the reply's body."""
        self._pass_on(connection, b"", payload, ended)

    def _pass_on(self, connection: UpstreamConnection, head: bytes, payload: bytes, ended: bool) -> None:
        self.bytes_out += len(payload)
        if self._chunks_reply:
            payload = (chunk(payload) if payload else b"") + (LAST_CHUNK if ended else b"")
        self.client.transport.write(head + payload if head else payload)
        if ended:
            self.connection = None
            request_ended = self._request_ended
            connection.reply_ended(request_ended, self._reply_keep_alive)
            self._end(self.status, None)
            self.client.exchange_ended(self._keep_client and request_ended, request_ended)
        else:
            self._plane.wheel.arm(connection, self.route.settings.idle_timeout)
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
            self._end(self.status, None)
            self.client.exchange_ended(self._keep_client and self._request_ended, self._request_ended)
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
            self._plane.wheel.arm(connection, self.route.settings.idle_timeout)
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
        self._end(CLIENT_GONE.status, CLIENT_GONE)

    def _fail(self, reason: Reason, detail: str) -> None:
        self._drop_connection()
        if self.status:
            self._end(self.status, reason, detail)
            self.client.reply_broken()
        else:
            self._refuse(reason, detail)

    def _refuse(self, reason: Reason, detail: str) -> None:
        self._drop_connection()
        request_ended = self._request_ended
        self._end(reason.status, reason, detail)
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

    def _end(self, status: int, reason: Reason | None, detail: str = "") -> None:
        """Give the slot back, count, log. The first call is the only one that does anything."""
        if self._over:
            return
        self._over = True
        if self._slot >= 0:
            self._plane.wheel.forget(self)
        member = self._handle.upstream.member if self._handle is not None else ""
        self._release()
        name = reason.name if reason is not None else ""
        plane, path = self._plane, self.route.path
        now = plane.clock()
        metrics = plane.metrics
        metrics.requests[path, member, status, name] += 1
        metrics.durations[path].observe(now - self.started)
        if self._first_byte_at:
            metrics.first_bytes[path].observe(self._first_byte_at - self.started)
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
            request_id=self.request_id,
        )


_NEVER = float("inf")
