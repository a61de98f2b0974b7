"""One request and its reply: from the route to the release of the slot.

An exchange begins with a head that was accepted and ends exactly once, in `_end`: when the reply's body has ended,
when it failed, or when the client left. All waiting is in callbacks; on the way without a new connection nothing
awaits.
"""

import asyncio
import math
from typing import TYPE_CHECKING

import structlog

from slb.admission.entry import Entry
from slb.balance.eligible import NOT_SERVED
from slb.balance.upstream import Handle, LiveUpstream
from slb.errors import (
    CLIENT_GONE,
    INTERNAL,
    NO_UPSTREAM,
    OVERLOADED,
    REQUEST_TIMEOUT,
    UPSTREAM_CONNECT,
    UPSTREAM_PROTOCOL,
    UPSTREAM_RESET,
    UPSTREAM_TIMEOUT,
    Reason,
)
from slb.proxy.body import LAST_CHUNK, chunk, last_chunk
from slb.proxy.choice import ask_for_slot, choose
from slb.proxy.deadlines import Timed
from slb.proxy.elsewhere import after_failure, had_been_given_up, may_repeat, past_full
from slb.proxy.headers import RequestHead
from slb.proxy.messages import reply_start, request_start, switching_start
from slb.proxy.plane import Plane
from slb.proxy.pool import ConnectFailed, Pool
from slb.proxy.replies import ReplyHead
from slb.proxy.target import RequestLine
from slb.proxy.tunnel import open_tunnel
from slb.proxy.upload import Upload
from slb.proxy.upstream import UpstreamConnection
from slb.routing.table import Route

if TYPE_CHECKING:
    from slb.proxy.downstream import Downstream

NEVER = math.inf

_log = structlog.get_logger("slb.proxy")

_MAX_INTERIMS = 100
"""1xx replies to one request. Nobody needs as many, and a broken upstream may never stop."""


class Exchange(Timed):
    """`client` is the connection the request came on; `line.route` has been found, nothing picked yet.

    What stands here differs from its default in few exchanges, and most of them never set it. `tried`: where an
    attempt failed; `avoided`: those, and who had no connection left; `detail`: what the log tells of the last one.
    """

    connection: UpstreamConnection | None = None
    handle: Handle | None = None
    upload: Upload | None = None
    status = 0
    bytes_in = 0
    bytes_out = 0
    sent_at = 0.0
    first_byte_at = 0.0
    tried: tuple[LiveUpstream, ...] = ()
    avoided: frozenset[LiveUpstream] = frozenset()
    failed: tuple[str, ...] = ()
    detail = ""
    keep_client = True
    chunks_reply = False
    reached_client = False
    _interims = 0
    _waiting: asyncio.Task[None] | asyncio.TimerHandle | None = None
    _reply_keep_alive = False
    replaced = False  # a connection that its upstream had given up
    _over = False
    entry: Entry | None = None
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
        limit = self.head.timeout or self.route.settings.request_timeout
        if limit:
            self._plane.wheel.arm(self, self.started + limit)
        if self.head.length:
            self.upload = Upload(self, self._plane, payload, ended)
        self._attempt()

    def _attempt(self) -> None:
        route = self.route
        without = route.view.avoiding(self.avoided)
        if not route.view.left(without):
            self.rejected(NO_UPSTREAM, f"{route.path} has no upstream that takes requests")
        elif route.is_counted:
            self.entry = ask_for_slot(self, self._plane, without)
        else:
            self.admitted(Handle(choose(self, self._plane, without)))

    def admitted(self, handle: Handle) -> None:
        """It has a slot: on to the upstream."""
        self.handle = handle
        try:
            pool = self._plane.pools.of(handle.upstream)
            connection = pool.take()
            if connection is not None:
                self._send(connection)
            else:
                self._connect(pool)
        except Exception:  # noqa: BLE001 -- the gate that called has nobody to tell
            self._broke()

    def _connect(self, pool: Pool) -> None:
        if pool.is_full:
            if not past_full(self, self._plane, pool):
                self.rejected(OVERLOADED, f"{pool.upstream.member} has all the connections it may have")
        else:
            pool.reserve()
            self._waiting = asyncio.get_running_loop().create_task(self._connected(pool))

    async def _connected(self, pool: Pool) -> None:
        try:
            connection = await pool.connect(self.route.settings.connect_timeout)
            if self._over:
                pool.put(connection, self._plane.clock())
            else:
                self._send(connection)
        except ConnectFailed as error:
            if error.refused:
                self._plane.on_refusal(pool.upstream)
            if not self._over and error.ours is not None:
                self.rejected(error.ours, str(error))
            elif not self._over:
                self._failed_at(pool.upstream, UPSTREAM_CONNECT, str(error), may_repeat=True)
        except Exception:  # noqa: BLE001 -- nobody waits for this task
            self._broke()

    def _send(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        data = request_start(self, self._plane)
        if self.upload is not None:
            data += self.upload.start()
        now = self.sent_at = self._plane.clock()
        connection.carry(self, data, now + self.route.settings.first_byte_timeout)

    @property
    def request_ended(self) -> bool:
        """Whether all of the request has come."""
        return self.upload is None or self.upload.ended

    # -- towards the client

    def interim(self, head: ReplyHead) -> bool:
        """A 1xx reply, for clients that know them. False where it is one too many."""
        self._interims += 1
        if self.line.minor == 1:
            self.reached_client = True
            self._plane.outbox.post(self.client.transport, head.start + b"\r\n")
        return self._interims < _MAX_INTERIMS

    def reply_begins(self, connection: UpstreamConnection, head: ReplyHead, payload: bytes, ended: bool) -> None:
        """The final head and what came of the body with it; one write, so that small replies are one packet."""
        upstream, now = connection.pool.upstream, self._plane.clock()
        if head.status in NOT_SERVED:
            self.detail = f"{connection.destination} answered {head.status}"
            self._plane.on_failure(upstream, str(head.status))
            if may_repeat(self) and after_failure(self, self._plane, upstream, str(head.status)):
                return
        else:
            upstream.answered_at = now
        self.first_byte_at = now
        self.status = head.status
        self._reply_keep_alive = head.keep_alive
        if head.length < 0 and self.method != b"HEAD":
            self.chunks_reply = self.line.minor == 1  # HTTP/1.0 knows the end by the connection's
            self.keep_client = self.keep_client and self.chunks_reply
            if upstream.on_probation:  # whose replies may all be streams that end with their clients
                self._was_served_by(upstream)
            if self.handle is not None and upstream.load_stats is not None and head.is_event_stream:
                self.handle.lasts()
        if self._plane.draining or self.client.is_last or (self.upload is not None and not self.upload.ended):
            self.keep_client = False
        self._pass_on(connection, reply_start(self, self._plane, head, now), payload, ended, now)

    def reply_continues(self, connection: UpstreamConnection, payload: bytes, ended: bool) -> None:
        """More of the reply's body."""
        self._pass_on(connection, b"", payload, ended, self._plane.clock())

    def _pass_on(
        self, connection: UpstreamConnection, start: bytes, payload: bytes, ended: bool, now: float
    ) -> None:
        self.bytes_out += len(payload)
        if self.chunks_reply:
            payload = (chunk(payload) if payload else b"") + (self._last_chunk(connection) if ended else b"")
        self._plane.outbox.post(self.client.transport, start + payload if start else payload)
        if ended:
            self.connection = None
            upload, upstream = self.upload, connection.pool.upstream
            request_ended = upload is None or upload.ended  # as the property says, one call less
            if upstream.failures:
                self._was_served_by(upstream)
            connection.reply_ended(request_ended and self._reply_keep_alive, now)
            self._end(self.status, None, self.detail, now)
            self.client.exchange_ended(self, self.keep_client and request_ended, request_ended, now)
        else:
            self._plane.wheel.arm(connection, now + self.route.settings.idle_timeout)
            if self.client.is_stalled:
                connection.pause_reading()

    def _was_served_by(self, upstream: LiveUpstream) -> None:
        """Whatever failed there before is not in a row with what may fail next."""
        if self.status not in NOT_SERVED:
            upstream.failures = 0

    def _last_chunk(self, connection: UpstreamConnection) -> bytes:
        """With the upstream's trailers, for clients that asked for them (RFC 9110, 6.5.1)."""
        return last_chunk(connection.trailers) if self.head.wants_trailers else LAST_CHUNK

    # -- a tunnel

    def switches(self, connection: UpstreamConnection, head: ReplyHead, rest: bytes) -> bool:
        """101: from now on bytes pass both ways. False where the client has not asked for that protocol."""
        if self.line.minor == 0 or not self.head.upgrade or head.upgrade.lower() != self.head.upgrade.lower():
            return False
        self.first_byte_at = self._plane.clock()
        self.status = head.status
        self.connection = None
        self._was_served_by(connection.pool.upstream)
        if self.handle is not None:
            self.handle.lasts()
        start = switching_start(self, self._plane, head, self.first_byte_at)
        open_tunnel(self, self._plane, connection, start + rest)
        return True

    def tunnel_ended(self, up: int, down: int) -> None:
        """Both sides are gone; so many bytes have gone each way."""
        self.bytes_in += up
        self.bytes_out += down
        self._end(self.status, None, "", self._plane.clock())
        self.client.tunnel_ended()

    # -- what goes wrong

    def upstream_lost(self, connection: UpstreamConnection, clean: bool, heard: bool) -> None:
        """The connection ended under this exchange. `heard`: some of a reply's head had come."""
        if self.connection is not connection:
            return
        if self.status and clean and connection.ends_with_connection:
            self.connection = None
            self._was_served_by(connection.pool.upstream)
            if self.chunks_reply:
                self._plane.outbox.post(self.client.transport, LAST_CHUNK)
            now, request_ended = self._plane.clock(), self.request_ended
            self._end(self.status, None, self.detail, now)
            self.client.exchange_ended(self, self.keep_client and request_ended, request_ended, now)
            return
        if connection.used and not heard and had_been_given_up(self, connection):
            self.connection = None
            self._connect(connection.pool)
            return
        blame = self.request_ended  # else it may have had enough of a body that the client chose
        detail = f"{connection.destination} closed the connection"
        self._failed_at(connection.pool.upstream, UPSTREAM_RESET, detail, may_repeat(self), blame)

    def reply_malformed(self, connection: UpstreamConnection, why: str, blame: bool = True) -> None:
        """What the upstream sent is not HTTP/1.1, or (`blame` False) more than slb takes."""
        detail = f"{connection.destination}: {why}"
        self._failed_at(connection.pool.upstream, UPSTREAM_PROTOCOL, detail, False, blame)

    def reply_late(self, connection: UpstreamConnection) -> None:
        """Neither first byte nor further bytes in time, unless the client is slow, or the upload goes on."""
        held = self.client.upload_is_held
        uploads = self.upload is not None and (self.upload.is_taken_on() if held else not self.upload.ended)
        if self.client.is_stalled or uploads:
            self._plane.wheel.arm(connection, self._plane.clock() + self.route.settings.idle_timeout)
        else:
            upstream = connection.pool.upstream
            self._failed_at(
                upstream, UPSTREAM_TIMEOUT, f"{connection.destination} did not answer in time", may_repeat=False
            )

    def _failed_at(
        self, upstream: LiveUpstream, reason: Reason, detail: str, may_repeat: bool, blame: bool = True
    ) -> None:
        """An attempt failed: another upstream, or the end. `blame`: it says something of the upstream. What breaks
        off a 4xx never does: the client had earned it, and can earn it as often as it likes."""
        if blame and not 400 <= self.status < 500:
            self._plane.on_failure(upstream, reason.name)
        self.detail = detail
        if not may_repeat or not after_failure(self, self._plane, upstream, reason.name):
            self.fail(reason, self.detail)

    def goes_elsewhere(self, delay: float) -> None:
        """Leave this upstream, and make another attempt in `delay` seconds."""
        self.detail = ""
        self.sent_at = 0.0
        self._drop_connection()
        if self.handle is not None:
            self.handle.release(completed=False)
            self.handle = None
        self._waiting = asyncio.get_running_loop().call_later(delay, self._attempt_again)

    def _attempt_again(self) -> None:
        if self._over:
            return
        try:
            self._attempt()
        except Exception:  # noqa: BLE001 -- a timer has called
            self._broke()

    def _broke(self) -> None:
        """slb itself has failed at this request, and nobody else would answer: for who handles that exception."""
        _log.exception("request_broke", request_id=self.request_id.decode())
        if not self._over:
            self.fail(INTERNAL, "slb failed on the way to an upstream")

    def expired(self) -> None:
        """The whole request took longer than it may. A caller's own deadline says nothing of the upstream; the
        route's does, where the upstream has all of the request and not answered."""
        detail, connection = "the whole request took longer than its time", self.connection
        if connection is not None:
            detail += f", {'answered' if self.status else 'not answered'} by {connection.destination}"
            if not (self.status or self.head.timeout) and self.request_ended:
                self._plane.on_failure(connection.pool.upstream, UPSTREAM_TIMEOUT.name)
        self.fail(UPSTREAM_TIMEOUT, detail)

    def client_late(self) -> None:
        """The client did not send its body, or did not read its reply, in time."""
        what = "the client did not read its reply" if self.client.is_stalled else "the request's body did not come"
        self.fail(REQUEST_TIMEOUT, f"{what} in time")

    def client_lost(self) -> None:
        """The client left: its upstream stops working for it now."""
        self._plane.metrics.client_disconnects += 1
        self._end(CLIENT_GONE.status, CLIENT_GONE, "", self._plane.clock())
        self._drop_connection()

    def fail(self, reason: Reason, detail: str) -> None:
        """It cannot be served to its end: say so, or break off what the client has of a reply."""
        if self.status:
            self._end(self.status, reason, detail, self._plane.clock())
            self._drop_connection()
            self.client.reply_broken()
        else:
            self.rejected(reason, detail)

    def rejected(self, reason: Reason, detail: str) -> None:
        """Refused in slb's own name: there is no slot for it, or no upstream."""
        self._drop_connection()
        request_ended = self.request_ended
        self._end(reason.status, reason, detail, self._plane.clock())
        self.client.refuse(reason, detail, self.request_id, self.line, self.head, request_ended)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()

    # -- the end

    def _end(self, status: int, reason: Reason | None, detail: str, now: float) -> None:
        """Give the slot back, count, log. The first call is the only one that does anything."""
        if self._over:
            return
        self._over = True
        self.upload = None  # which has this one: together they would stay until the next garbage collection
        plane, handle = self._plane, self.handle
        if self._slot >= 0:
            plane.wheel.forget(self)
        if self.entry is not None:
            self.entry.leave()
        member = ""
        if handle is not None:
            member = handle.upstream.member
            handle.release(reason is None and 200 <= status < 500)  # a tunnel lasts as long as it likes
        name = reason.name if reason is not None else ""
        plane.metrics.traffic.request_ended(self, member, status, name, now)
        if plane.access_log.wants(status, name or "".join(self.failed), handle is not None):
            plane.log_exchange(self, status, name, detail, now)
