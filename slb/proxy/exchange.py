"""One request and its reply, from the route to the release of the slot: how the reply is passed on, and what goes
wrong with it. What comes before stands in attempts.py, the end in exchange_base.py."""

import time

from slb.balance.eligible import NOT_SERVED
from slb.balance.upstream import LiveUpstream
from slb.errors import (
    ERROR_FRAME,
    UPSTREAM_PROTOCOL,
    UPSTREAM_RESET,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNREACHED,
    Reason,
)
from slb.proxy.attempts import Attempts
from slb.proxy.messages import reply_start, request_start, server_timing, switching_start
from slb.proxy.states import EXCHANGE, ExchangeEvent
from slb.proxy.tunnel import open_tunnel
from slb.routing.witness import next_look
from slb.upstreams.body import LAST_CHUNK, chunk, last_chunk
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.frames import ErrorEvents
from slb.upstreams.reach import SILENT
from slb.upstreams.replies import MAX_INTERIMS, ReplyHead

_SEND, _REPLY = ExchangeEvent.SEND, ExchangeEvent.REPLY


class Exchange(Attempts):
    """`_told`: what an answer that came to its end is counted as besides its status."""

    _interims = 0
    _extended_at = 0.0
    _events: ErrorEvents | None = None
    _told: Reason | None = None
    _reply_keep_alive = False

    # -- the request, on its connection

    def _send(self, connection: UpstreamConnection) -> None:
        self.state = EXCHANGE[self.state][_SEND]
        self.connection = connection
        context, upload = self._context, self.upload
        data, ended = request_start(self.request, connection.pool.upstream, context.identity), True
        if upload is not None:
            data, ended = data + upload.start(), upload.ended
        now = self.sent_at = context.clock()
        self.is_timed, self.is_good = ended, True
        due = now + self.route.first_look
        connection.carry(self, data, ended, due, self.request.line.method == b"HEAD")

    def body_is_sent(self) -> None:
        """The rest of the body has been written: the time from now on is the upstream's."""
        if not self.status:
            now = self.sent_at = self._context.clock()
            self.is_timed = True
            self._context.wheel.arm(self._carrier, now + self.route.first_look)

    def upload_is_held_back(self, held: bool) -> None:
        if self.upload is not None:
            self.upload.is_held_back(held)

    @property
    def _carrier(self) -> UpstreamConnection:
        assert self.connection is not None
        return self.connection

    # -- a reply

    def interim(self, head: ReplyHead) -> bool:
        """Pass on a 1xx reply, where the client knows them. False where it is one too many."""
        self._interims += 1
        context, settings = self._context, self.route.settings
        if self.request.line.minor == 1:
            context.outbox.post(self.client.transport, head.start + b"\r\n")
        if self._interims >= MAX_INTERIMS:
            return False
        now = self._carrier.pool.upstream.alive_at = context.clock()
        if settings.interim_extends:
            self._extended_at = now
            context.wheel.arm(self._carrier, now + self.route.first_look)
        return True

    def reply_begins(self, head: ReplyHead, payload: bytes, ended: bool) -> None:
        """Pass on the final head and `payload` in one write, so that a small reply is one packet."""
        connection = self.connection
        assert connection is not None
        upstream, now = connection.pool.upstream, self._context.clock()
        if ended or payload:
            upstream.alive_at = now
        else:
            self._has_only_begun(upstream, head, now)
        status = head.status
        if status < 500 and status != 429:
            upstream.answered_at = now
        elif not self._speaks_well(upstream, head):
            return
        self.state = EXCHANGE[self.state][_REPLY]
        self.first_byte_at = now
        self.status = status
        self._reply_keep_alive = head.keep_alive
        request, context = self.request, self._context
        line, asked = request.line, request.head
        if head.length < 0 and line.method != b"HEAD":
            self.chunks_reply = line.minor == 1  # HTTP/1.0 knows the end by the connection's
            self.keep_client = self.keep_client and self.chunks_reply
            if head.is_event_stream:
                self._events = events = ErrorEvents()
                self._look_for_errors(events, upstream, payload, ended)
                if self.handle is not None and upstream.load_stats is not None:
                    self.handle.lasts()
        keep = line.minor if asked.keep_alive is None else asked.keep_alive  # by the client's wish (RFC 9112, 9.3)
        uploads = self.upload is not None and not self.upload.ended
        if not keep or uploads or context.draining or self.client.is_last:
            self.keep_client = False
        timing = self._timing(now) if asked.wants_timing else b""
        start = reply_start(request, head, self.keep_client, self.chunks_reply, timing)
        self._pass_on(connection, start, payload, ended, now)

    def _has_only_begun(self, upstream: LiveUpstream, head: ReplyHead, now: float) -> None:
        """A head is no sign of life: engines send that of a stream before there is a token, also while the process
        that has the GPU hangs. Who asks by GET for what has no length, as a browser's EventSource and a watch do,
        may have nothing to be told."""
        if head.length < 0 and self.request.line.method == b"GET":
            self.may_be_silent, upstream.alive_at = True, now
        else:
            self.owes_body = True

    def _timing(self, now: float) -> bytes:
        return server_timing(now - self.started, self.entry, len(self.tried.upstreams) + 1, self._context.tells_all)

    def _speaks_well(self, upstream: LiveUpstream, head: ReplyHead) -> bool:
        """A reply that says that the request was not served. False where it is sent on to another upstream."""
        status = head.status
        self.is_good = self._context.witness.replied(upstream, status, head.retry_after(time.time()), self.route)
        if status in NOT_SERVED:
            self.detail = f"{self._carrier.destination} answered {status}"
            return not (self._may_repeat() and self._is_unanswered and self._leaves(upstream, str(status)))
        return True

    def _look_for_errors(self, events: ErrorEvents, upstream: LiveUpstream, payload: bytes, ended: bool) -> None:
        """An engine that fails once its answer has begun can say so only in the stream."""
        if self.is_good and events.is_in(payload, ended):
            self.is_good, self._told = False, ERROR_FRAME
            self.detail = f"{self._carrier.destination} told of an error in its stream"
            self._context.witness.failed(upstream, ERROR_FRAME.name, self.route)

    def reply_continues(self, payload: bytes, ended: bool) -> None:
        connection = self._carrier
        if self._events is not None:
            self._look_for_errors(self._events, connection.pool.upstream, payload, ended)
        now = connection.pool.upstream.alive_at = self._context.clock()
        if self.owes_body:
            self.owes_body, self.first_byte_at = False, now
        self._pass_on(connection, b"", payload, ended, now)

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
            told = None
            if not self.is_good:
                told = self._told
            else:  # as `_was_answered_by` and `Passive.answered` say, two calls less
                took = self.first_byte_at - self.sent_at if self.status < 400 and self.is_timed else 0.0
                pace = self.route.pace
                is_suspect = upstream.troubles or upstream.failures or upstream.on_probation or upstream.set_aside
                if pace.skip and took <= pace.slow_after and not is_suspect:
                    pace.skip -= 1
                else:
                    self._context.witness.answered(upstream, self.route, took, self.sent_at)
            connection.reply_ended(request_ended and self._reply_keep_alive, now)
            self._end(self.status, told, self.detail, now)
            self.client.exchange_ended(self, self.keep_client and request_ended, request_ended, now)
        else:
            look = now + self.route.pause_look
            if self.owes_body:
                look = min(look, max(now, self.sent_at + self.route.first_look))
            self._context.wheel.arm(connection, look)
            if self.client.is_stalled:
                connection.pause_reading()

    def _was_answered_by(self, upstream: LiveUpstream) -> None:
        took = self.first_byte_at - self.sent_at if self.is_timed and self.status < 400 else 0.0
        self._context.witness.answered(upstream, self.route, took, self.sent_at)

    def _last_chunk(self, connection: UpstreamConnection) -> bytes:
        """With the upstream's trailers, for clients that asked for them (RFC 9110, 6.5.1)."""
        return last_chunk(connection.trailers) if self.request.head.wants_trailers else LAST_CHUNK

    def client_holds_back(self) -> None:
        """The client does not read for now: the time the reply takes is not the upstream's from here on."""
        if self.handle is not None and self.status < 500:
            self.handle.lasts()

    # -- a tunnel

    def switches(self, head: ReplyHead, rest: bytes) -> bool:
        """101: join both connections. False where the client has not asked for that protocol."""
        wanted = self.request.head.upgrade
        if self.request.line.minor == 0 or not wanted or head.upgrade.lower() != wanted.lower():
            return False
        if self.client.transport.is_closing():  # its end has come, and would never reach a tunnel
            self.client_lost()
            return True
        self.state = EXCHANGE[self.state][ExchangeEvent.SWITCH]
        now = self.first_byte_at = self._context.clock()
        self.status = head.status
        connection, self.connection = self._carrier, None
        connection.pool.upstream.alive_at = now
        self._was_answered_by(connection.pool.upstream)
        if self.handle is not None:
            self.handle.lasts()
        timing = self._timing(now) if self.request.head.wants_timing else b""
        answer = switching_start(self.request, head, timing) + rest
        idle = self.route.settings.tunnel_timeout
        open_tunnel(self.client, connection, self._context.wheel, idle, answer, self._tunnel_ended)
        return True

    def _tunnel_ended(self, up: int, down: int) -> None:
        self.bytes_in += up
        self.bytes_out += down
        self._end(self.status, None, "", self._context.clock())

    # -- what goes wrong

    def upstream_lost(self, clean: bool, partial: bool) -> None:
        """The connection ended. `partial`: some of a reply's head had come."""
        connection = self._carrier
        if self.status and clean and connection.ends_with_connection:
            if self._events is not None:
                self._look_for_errors(self._events, connection.pool.upstream, b"", ended=True)
            self.connection = None
            if self.is_good:
                self._was_answered_by(connection.pool.upstream)
            if self.chunks_reply:
                self._context.outbox.post(self.client.transport, LAST_CHUNK)
            now, request_ended = self._context.clock(), self.request_ended
            self._end(self.status, self._told, self.detail, now)
            self.client.exchange_ended(self, self.keep_client and request_ended, request_ended, now)
            return
        if connection.was_cut:
            self._spoilt(connection, UPSTREAM_UNREACHED, SILENT, again=self._may_repeat() and self._is_unanswered)
            return
        if connection.used and not partial and self._is_unanswered and self._is_replaced(connection):
            return
        # It may have had enough of a body that the client chose, also of one that waits in the kernels by now.
        blame = self.request_ended and not connection.untaken
        again = self._may_repeat() and self._is_unanswered
        self._spoilt(connection, UPSTREAM_RESET, " closed the connection", blame, again)

    def reply_malformed(self, why: str, blame: bool = True) -> None:
        """What the upstream sent is not HTTP/1.1, or (`blame` False) more than slb takes."""
        self._spoilt(self._carrier, UPSTREAM_PROTOCOL, f": {why}", blame)

    def reply_late(self) -> None:
        """No byte in time, unless the client is slow, or the upload goes on."""
        connection, held = self._carrier, self.client.upload_is_held
        uploads = self.upload is not None and (self.upload.is_taken_on() if held else not self.upload.ended)
        now, route = self._context.clock(), self.route
        if self.client.is_stalled or uploads:
            self.silence = None
            self._context.wheel.arm(connection, now + route.settings.idle_timeout)
            return
        if self.status and not self.owes_body and (self.silence is None or self.silence[0] != self.bytes_out):
            self.silence = self.bytes_out, now - route.pause_look
        if (due := self._reply_due) > now:
            since = self.owed_since  # whether the upstream is slow, or stuck meanwhile, is for others to say
            if since:
                self._context.witness.unanswered(connection.pool.upstream, since, route, False, self.bytes_out > 0)
            self._context.wheel.arm(connection, min(due, now + next_look(route, now - (since or now))))
        else:
            self._spoilt(connection, UPSTREAM_TIMEOUT, " did not answer in time")

    @property
    def _reply_due(self) -> float:
        """When its next byte is late."""
        settings = self.route.settings
        first = max(self.sent_at, self._extended_at) + settings.first_byte_timeout
        if not self.status:
            return first
        idle = (self.first_byte_at if self.silence is None else self.silence[1]) + settings.idle_timeout
        return max(first, idle) if self.owes_body else idle

    def _spoilt(
        self, connection: UpstreamConnection, reason: Reason, what: str, blame: bool = True, again: bool = False
    ) -> None:
        """An attempt failed on its connection; `what` follows the upstream's name in the log. A 4xx that breaks off
        is no fault of the upstream: a client can cause it as often as it likes."""
        blame = blame and not 400 <= self.status < 500
        self._failed_at(connection.pool.upstream, reason, f"{connection.destination}{what}", again, blame)

    @property
    def _is_unanswered(self) -> bool:
        """Whether nothing of a reply has reached the client."""
        return not self.status and not (self._interims and self.request.line.minor)
