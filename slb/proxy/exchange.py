"""One request and its reply: from the route to the release of the slot.

An exchange begins with a head that was accepted and ends exactly once, in `_end`: when the reply's body has ended,
when it failed, or when the client left. All waiting is in callbacks; on the way without a new connection nothing
awaits.
"""

import asyncio

import structlog

from slb.admission.entry import Entry
from slb.balance.eligible import NOT_SERVED, still_to_try
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
from slb.proxy.access_line import log_exchange
from slb.proxy.body import LAST_CHUNK, chunk, last_chunk
from slb.proxy.choice import ask_for_slot, choose
from slb.proxy.context import ProxyContext
from slb.proxy.deadlines import NEVER, Timed
from slb.proxy.interfaces import Client, Lender
from slb.proxy.messages import reply_start, request_start, server_timing, switching_start
from slb.proxy.pool import ConnectFailed
from slb.proxy.replies import ReplyHead
from slb.proxy.request import Request
from slb.proxy.retry import NOTHING, Tried, is_idempotent, on_fresh_connection, past_full
from slb.proxy.tunnel import open_tunnel
from slb.proxy.upload import Upload
from slb.proxy.upstream import UpstreamConnection

_log = structlog.get_logger("slb.proxy")

_MAX_INTERIMS = 100
"""1xx replies to one request. No reply needs as many, and a broken upstream may never stop."""


class Exchange(Timed):
    """`client` is the connection the request came on; no upstream is picked yet. `started`: when its head had come.

    What stands here differs from its default in few exchanges, and most of them never set it. `tried`: what the
    request has behind it; `detail`: what the log says of the last attempt.
    """

    connection: UpstreamConnection | None = None
    handle: Handle | None = None
    upload: Upload | None = None
    status = 0
    bytes_in = 0
    bytes_out = 0
    sent_at = 0.0
    first_byte_at = 0.0
    tried: Tried = NOTHING
    detail = ""
    keep_client = True
    chunks_reply = False
    _interims = 0
    _waiting: asyncio.Task[None] | asyncio.TimerHandle | None = None
    _reply_keep_alive = False
    _over = False
    entry: Entry | None = None
    _slot = -1
    _looked_at = NEVER

    def __init__(self, context: ProxyContext, client: Client, request: Request, started: float) -> None:
        self._context = context
        self.client = client
        self.request = request
        self.route = request.route
        self.started = started

    # -- towards the upstream

    def begin(self, payload: bytes, ended: bool) -> None:
        """Send the request on its way. `payload` is what has come of its body, `ended` whether that is all."""
        head = self.request.head
        limit = head.timeout or self.route.settings.request_timeout
        if limit:
            self._context.wheel.arm(self, self.started + limit)
        if head.length:
            context = self._context
            self.upload = Upload(self, context.wheel, context.outbox, payload, ended)
        self._attempt()

    def _attempt(self) -> None:
        route = self.route
        upstreams = route.serving if not self.avoided else still_to_try(route.serving, self.avoided, route.settings)
        if not upstreams:
            self.rejected(NO_UPSTREAM, f"{route.path} has no upstream that takes requests")
        elif route.is_counted:
            self.entry = ask_for_slot(self, self._context, upstreams)
        else:
            self.admitted(Handle(choose(self, self._context, upstreams)))

    def admitted(self, handle: Handle) -> None:
        """It has a slot: on to the upstream."""
        self.handle = handle
        try:
            pool = self._context.pools.of(handle.upstream)
            connection = pool.take()
            if connection is not None:
                self._send(connection)
            else:
                self._connect(pool)
        except Exception:  # noqa: BLE001 -- the gate that called has no use for it
            self._broke()

    def _connect(self, pool: Lender[UpstreamConnection]) -> None:
        if pool.is_full:
            full = (pool.upstream, *self._context.pools.full(self.route.serving))
            if (tried := past_full(self.route, self.tried, full)) is not None:
                # Not at once: the gate that gave the slot, which is given back here, has not returned yet.
                self._go_elsewhere(tried, 0.0)
            else:
                self.rejected(OVERLOADED, f"{pool.upstream.member} has all the connections it may have")
        else:
            pool.reserve()
            self._waiting = asyncio.get_running_loop().create_task(self._connected(pool))

    async def _connected(self, pool: Lender[UpstreamConnection]) -> None:
        try:
            connection = await pool.connect(self.route.settings.connect_timeout)
            if self._over:
                pool.put(connection, self._context.clock())
            else:
                self._send(connection)
        except ConnectFailed as error:
            if error.refused:
                self._context.on_refusal(pool.upstream)
            if not self._over and error.ours is not None:
                self.rejected(error.ours, str(error))
            elif not self._over:
                self._failed_at(pool.upstream, UPSTREAM_CONNECT, str(error), again=True)
        except Exception:  # noqa: BLE001 -- nothing waits for this task
            self._broke()

    def _send(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        context, upload = self._context, self.upload
        data, ended = request_start(self.request, connection.pool.upstream, context.identity), True
        if upload is not None:
            data, ended = data + upload.start(), upload.ended
        now = self.sent_at = context.clock()
        connection.carry(self, data, ended, now + self.route.settings.first_byte_timeout)

    @property
    def avoided(self) -> frozenset[LiveUpstream]:
        """The upstreams it does not go to again."""
        return self.tried.avoided

    @property
    def request_ended(self) -> bool:
        """Whether all of the request has come."""
        return self.upload is None or self.upload.ended

    def client_holds_back(self) -> None:
        """The client takes no more for now, and from here on it decides how long the reply takes."""
        if self.handle is not None and self.status < 500:
            self.handle.lasts()

    def upload_is_held_back(self, held: bool) -> None:
        """The upstream takes no more of the body for now; or (`held` False) more again."""
        if self.upload is not None:
            self.upload.is_held_back(held)

    # -- towards the client

    def interim(self, head: ReplyHead) -> bool:
        """A 1xx reply, for clients that know them. False where it is one too many."""
        self._interims += 1
        if self.request.line.minor == 1:
            self._context.outbox.post(self.client.transport, head.start + b"\r\n")
        return self._interims < _MAX_INTERIMS

    def reply_begins(self, connection: UpstreamConnection, head: ReplyHead, payload: bytes, ended: bool) -> None:
        """The final head and what came of the body with it; one write, so that small replies are one packet."""
        upstream, now = connection.pool.upstream, self._context.clock()
        if head.status in NOT_SERVED:
            self.detail = f"{connection.destination} answered {head.status}"
            self._context.on_failure(upstream, str(head.status))
            if self._may_repeat and self._leaves(upstream, str(head.status)):
                return
        else:
            upstream.answered_at = now
        self.first_byte_at = now
        self.status = head.status
        self._reply_keep_alive = head.keep_alive
        line = self.request.line
        if head.length < 0 and line.method != b"HEAD":
            self.chunks_reply = line.minor == 1  # HTTP/1.0 knows the end by the connection's
            self.keep_client = self.keep_client and self.chunks_reply
            if upstream.on_probation:  # whose replies may all be streams that end with their clients
                self._was_served_by(upstream)
            if self.handle is not None and upstream.load_stats is not None and head.is_event_stream:
                self.handle.lasts()
        if self._context.draining or self.client.is_last or (self.upload is not None and not self.upload.ended):
            self.keep_client = False
        timing = self._timing(now) if self.request.head.wants_timing else b""
        start = reply_start(self.request, head, self.keep_client, self.chunks_reply, timing)
        self._pass_on(connection, start, payload, ended, now)

    def _timing(self, now: float) -> bytes:
        return server_timing(now - self.started, self.entry, len(self.tried.upstreams) + 1, self._context.tells_all)

    def reply_continues(self, connection: UpstreamConnection, payload: bytes, ended: bool) -> None:
        """More of the reply's body."""
        self._pass_on(connection, b"", payload, ended, self._context.clock())

    def _pass_on(
        self, connection: UpstreamConnection, start: bytes, payload: bytes, ended: bool, now: float
    ) -> None:
        self.bytes_out += len(payload)
        if self.chunks_reply:
            payload = (chunk(payload) if payload else b"") + (self._last_chunk(connection) if ended else b"")
        self._context.outbox.post(self.client.transport, start + payload if start else payload)
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
            self._context.wheel.arm(connection, now + self.route.settings.idle_timeout)
            if self.client.is_stalled:
                connection.pause_reading()

    def _was_served_by(self, upstream: LiveUpstream) -> None:
        """What failed there before is not in a row with what may fail next."""
        if self.status not in NOT_SERVED:
            upstream.failures = 0

    def _last_chunk(self, connection: UpstreamConnection) -> bytes:
        """With the upstream's trailers, for clients that asked for them (RFC 9110, 6.5.1)."""
        return last_chunk(connection.trailers) if self.request.head.wants_trailers else LAST_CHUNK

    # -- a tunnel

    def switches(self, connection: UpstreamConnection, head: ReplyHead, rest: bytes) -> bool:
        """101: from now on bytes pass both ways. False where the client has not asked for that protocol."""
        wanted = self.request.head.upgrade
        if self.request.line.minor == 0 or not wanted or head.upgrade.lower() != wanted.lower():
            return False
        now = self.first_byte_at = self._context.clock()
        self.status = head.status
        self.connection = None
        self._was_served_by(connection.pool.upstream)
        if self.handle is not None:
            self.handle.lasts()
        timing = self._timing(now) if self.request.head.wants_timing else b""
        answer = switching_start(self.request, head, timing) + rest
        idle = self.route.settings.tunnel_timeout
        open_tunnel(self.client, connection, self._context.wheel, idle, answer, self._tunnel_ended)
        return True

    def _tunnel_ended(self, up: int, down: int) -> None:
        """Both sides are gone; so many bytes have gone each way."""
        self.bytes_in += up
        self.bytes_out += down
        self._end(self.status, None, "", self._context.clock())

    # -- what goes wrong

    def upstream_lost(self, connection: UpstreamConnection, clean: bool, heard: bool) -> None:
        """The connection ended under this exchange. `heard`: some of a reply's head had come."""
        if self.connection is not connection:
            return
        if self.status and clean and connection.ends_with_connection:
            self.connection = None
            self._was_served_by(connection.pool.upstream)
            if self.chunks_reply:
                self._context.outbox.post(self.client.transport, LAST_CHUNK)
            now, request_ended = self._context.clock(), self.request_ended
            self._end(self.status, None, self.detail, now)
            self.client.exchange_ended(self, self.keep_client and request_ended, request_ended, now)
            return
        if connection.used and not heard and self._is_unanswered:
            idempotent = is_idempotent(self.request.line.method)
            tried = on_fresh_connection(self.tried, connection.unsent, self._is_whole, idempotent)
            if tried is not None:
                self.tried, self.connection = tried, None
                self._connect(connection.pool)
                return
        blame = self.request_ended  # else it may have had enough of a body that the client chose
        detail = f"{connection.destination} closed the connection"
        self._failed_at(connection.pool.upstream, UPSTREAM_RESET, detail, self._may_repeat, blame)

    def reply_malformed(self, connection: UpstreamConnection, why: str, blame: bool = True) -> None:
        """What the upstream sent is not HTTP/1.1, or (`blame` False) more than slb takes."""
        detail = f"{connection.destination}: {why}"
        self._failed_at(connection.pool.upstream, UPSTREAM_PROTOCOL, detail, False, blame)

    def reply_late(self, connection: UpstreamConnection) -> None:
        """Neither first byte nor further bytes in time, unless the client is slow, or the upload goes on."""
        held = self.client.upload_is_held
        uploads = self.upload is not None and (self.upload.is_taken_on() if held else not self.upload.ended)
        if self.client.is_stalled or uploads:
            self._context.wheel.arm(connection, self._context.clock() + self.route.settings.idle_timeout)
        else:
            upstream = connection.pool.upstream
            self._failed_at(
                upstream, UPSTREAM_TIMEOUT, f"{connection.destination} did not answer in time", again=False
            )

    def _failed_at(
        self, upstream: LiveUpstream, reason: Reason, detail: str, again: bool, blame: bool = True
    ) -> None:
        """An attempt failed: another upstream, where the request may be sent `again`, or the end. `blame`: it says
        something of the upstream. What breaks off a 4xx never does: the client had earned it, and can earn it as
        often as it likes."""
        if blame and not 400 <= self.status < 500:
            self._context.on_failure(upstream, reason.name)
        self.detail = detail
        if not again or not self._leaves(upstream, reason.name):
            self.fail(reason, self.detail)

    @property
    def _is_unanswered(self) -> bool:
        """Whether nothing of a reply has reached the client."""
        return not self.status and not (self._interims and self.request.line.minor)

    @property
    def _is_whole(self) -> bool:
        """Whether what has been sent of the request is held."""
        return self.upload is None or self.upload.held is not None

    @property
    def _may_repeat(self) -> bool:
        """Whether the request can be sent once more, and may be."""
        return is_idempotent(self.request.line.method) and self._is_whole

    def _leaves(self, upstream: LiveUpstream, why: str) -> bool:
        """Whether the request goes on to another than `upstream`, where it failed for `why`."""
        if not self._is_unanswered:
            return False
        decision = self._context.retries.after_failure(self.route, self.tried, upstream, why, self.detail)
        self.detail += decision.remark
        if decision.tried is None:
            return False
        self._go_elsewhere(decision.tried, decision.delay)
        return True

    def _go_elsewhere(self, tried: Tried, delay: float) -> None:
        """Leave this upstream, and make another attempt in `delay` seconds."""
        self.tried = tried
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
        """slb itself has failed at this request: answer it. To be called where that exception is handled."""
        _log.exception("request_broke", request_id=self.request.id.decode())
        if not self._over:
            self.fail(INTERNAL, "slb failed on the way to an upstream")

    def expired(self) -> None:
        """The whole request took longer than it may. A caller's own deadline says nothing of the upstream; the
        route's does, where the upstream has all of the request and not answered."""
        detail, connection = "the whole request took longer than its time", self.connection
        if connection is not None:
            detail += f", {'answered' if self.status else 'not answered'} by {connection.destination}"
            if not (self.status or self.request.head.timeout) and self.request_ended:
                self._context.on_failure(connection.pool.upstream, UPSTREAM_TIMEOUT.name)
        self.fail(UPSTREAM_TIMEOUT, detail)

    def client_late(self) -> None:
        """The client did not send its body, or did not read its reply, in time."""
        what = "the client did not read its reply" if self.client.is_stalled else "the request's body did not come"
        self.fail(REQUEST_TIMEOUT, f"{what} in time")

    def client_lost(self) -> None:
        """The client left: its upstream stops working for it now."""
        self._context.metrics.client_disconnects += 1
        self._end(CLIENT_GONE.status, CLIENT_GONE, "", self._context.clock())
        self._drop_connection()

    def fail(self, reason: Reason, detail: str) -> None:
        """It cannot be served to its end: say so, or break off what the client has of a reply."""
        if self.status:
            self._end(self.status, reason, detail, self._context.clock())
            self._drop_connection()
            self.client.reply_broken()
        else:
            self.rejected(reason, detail)

    def rejected(self, reason: Reason, detail: str) -> None:
        """Refused in slb's own name: there is no slot for it, or no upstream."""
        self._drop_connection()
        request_ended = self.request_ended
        self._end(reason.status, reason, detail, self._context.clock())
        self.client.refuse(self.request, reason, detail, request_ended)

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
        context, handle = self._context, self.handle
        if self._slot >= 0:
            context.wheel.forget(self)
        if self.entry is not None:
            self.entry.leave()
        member = ""
        if handle is not None:
            member = handle.upstream.member
            handle.release(reason is None and 200 <= status < 500)  # a tunnel lasts as long as it likes
        name = reason.name if reason is not None else ""
        context.metrics.traffic.request_ended(self, member, status, name, now)
        if context.access_log.wants(status, name or "".join(self.tried.failures), handle is not None):
            log_exchange(context.access_log, self, status, name, detail, now)
