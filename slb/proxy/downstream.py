"""One client connection: where a request's life begins and ends.

Frames requests, refuses what is malformed, and has at most one exchange at a time; what a pipelining client sends
meanwhile waits. Handing over to the applications is for good: they answer one request and close.
"""

import asyncio
from typing import cast

from slb.errors import OVERLOADED, REQUEST_TIMEOUT, Reason, Refused
from slb.proxy.body import Body, MalformedBody
from slb.proxy.clients import Clients
from slb.proxy.deadlines import NEVER
from slb.proxy.disconnect_watcher import acknowledged, reset_at_end
from slb.proxy.exchange import Exchange
from slb.proxy.flow import FULL_READ, PIPELINE, TURN, TURN_OVER, UPLOAD, ClientFlow
from slb.proxy.handed_over import HandedOver
from slb.proxy.headers import RequestHead
from slb.proxy.held import appended
from slb.proxy.messages import connection_line, keeps_open
from slb.proxy.peer import Peer
from slb.proxy.reader import reason_of, without_empty_lines
from slb.proxy.refusal import answer, no_way, note, unreadable
from slb.proxy.request import Request
from slb.proxy.target import RequestLine

_BUFFER = 64 * 1024
"""Bytes that wait on either side of a connection before its reading is paused."""
_LINGER = 5.0
"""Seconds a client that gets no further answer has to stop sending: closing on unread bytes resets the connection
and can destroy the answer before it is read (RFC 9112, 9.6)."""
_LINGER_BYTES = 64 << 20
"""And how much it may send meanwhile. Many clients see the answer only once their upload has gone through."""

_FIRST_LOOK = 1.0
"""Seconds until a client that does not read is looked at; from then on it has the route's `idle_timeout`."""


class Downstream(asyncio.Protocol, ClientFlow):
    """`exchange` is the request being served, None between requests."""

    __slots__ = (
        "_advancing",
        "_body",
        "_buffer",
        "_clients",
        "_context",
        "_head_since",
        "_lingered",
        "_reader",
        "_served",
        "_taken",
        "exchange",
        "is_last",
        "is_stalled",
        "lingering",
        "peer",
    )

    def __init__(self, clients: "Clients[Downstream]") -> None:
        ClientFlow.__init__(self, clients.disconnects)
        self._clients = clients
        self._context = clients.context
        self.exchange: Exchange | None = None
        self.is_stalled = False
        self.lingering = False
        self._buffer = b""
        self._body: Body | None = None
        self._lingered = 0
        self._advancing = False
        self._head_since = NEVER
        self._served = 0
        self.is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=_BUFFER)
        clients, places = self._clients, self._clients.places
        self.peer = Peer(transport, clients.settings.trusted_proxies)
        self._reader = clients.readers[self.peer.is_trusted]
        if not places.take(self, self.peer.address):
            self._refuse_unread(Refused(OVERLOADED, "too many connections"))
            if not places.turn_away(self):
                transport.abort()
            return
        self._await_request()

    def _await_request(self) -> None:
        now = self._head_since = self._context.clock()
        self._context.wheel.arm(self, now + self._clients.settings.head_timeout)

    # -- bytes from the client

    def data_received(self, data: bytes) -> None:
        if len(data) > FULL_READ:
            self._end_turn()
        if self.lingering:
            self._discard(data)
        elif self.exchange is None:
            seen = len(self._buffer)
            if not seen:
                self._advance(data)
            elif self._paused:  # there may be whole requests among it, which wait for their turn
                self._buffer = appended(self._buffer, data)
            else:
                data, self._buffer = appended(self._buffer, data), b""
                self._advance(data, seen)
        elif self._body is not None:
            self._read_body(self.exchange, self._body, data)
        else:
            self._buffer = appended(self._buffer, data)
            if len(self._buffer) > _BUFFER:
                self._hold(PIPELINE)

    def go_on(self) -> None:
        if self.exchange is None:
            if not (self.lingering or self.is_stalled):
                self._serve_next()
        elif self._body is not None and self._body.has_more:
            self._read_body(self.exchange, self._body, b"")

    def _advance(self, data: bytes, seen: int = 0) -> None:
        """Serve what stands at the front of `data` until a request is under way or more must come. Nothing is
        served to a client that does not read what it has been given. `seen`: bytes that began a head before; they
        are not searched for its end again, nor copied until it is there."""
        self._advancing = True
        until = 0.0
        try:
            while data and self.exchange is None and not (self.lingering or self.is_stalled):
                end = data.find(b"\r\n\r\n", seen and max(0, seen - 3)) + 4
                if end < 4:
                    data = self._await_head(data, seen)
                    break
                if seen:
                    data, seen = bytes(data), 0
                if data.startswith(b"\r\n"):
                    data = without_empty_lines(data)
                    continue
                line, head = self._reader.whole(data, end)
                methods = self._clients.reserved.get(line.path)
                if methods is not None and line.method in methods:
                    self._hand_over(data)
                else:
                    data = self._serve(line, head, data[end:])
                    if self.exchange is None:  # answered at once: does the client read that, before it gets more?
                        self._context.outbox.flush()
                        now = self._context.clock()
                        until = until or now + TURN
                        if now > until:
                            self._end_turn()
                            break
        except Refused as refusal:
            self._refuse_unread(refusal)
        self._advancing = False
        self._buffer = b"" if self.lingering else data
        if len(data) > _BUFFER and (self.exchange is not None or self.is_stalled):
            self._hold(PIPELINE)

    def _await_head(self, data: bytes, seen: int) -> bytes:
        data = self._reader.partial(data, seen)
        if self._head_since is NEVER:
            self._await_request()
        return data

    def _serve(self, line: RequestLine, head: RequestHead, rest: bytes) -> bytes:
        context, clients, route = self._context, self._clients, line.route
        body, payload = None, b""
        if head.length:
            body, payload, rest = self._reader.body(line, head, rest)
        self._buffer = rest  # which an answer given at once must know of, should it be the last
        if route is None or head.looped:
            reason, detail = no_way(head.looped, clients.mirror.ready)
            request_id = head.request_id or context.identity.new_request_id()
            note(context, reason, detail, request_id, self.peer.address, 0.0, line)
            self._answer(reason, detail, request_id, line, head, body is None)
            return rest
        if clients.max_requests:
            self._served += 1
            self.is_last = self._served >= clients.max_requests
        now = context.clock()
        request = Request(line, head, self.peer, route, head.request_id or context.identity.new_request_id())
        exchange = self.exchange = Exchange(context, self, request, now)
        self._body = body
        if body is None:
            self.due = NEVER
        else:
            context.wheel.arm(self, now + route.settings.idle_timeout)
            if body.has_more:
                self._end_turn()
        exchange.begin(payload, body is None)
        return rest

    def _read_body(self, exchange: Exchange, body: Body, data: bytes) -> None:
        try:
            payload = body.feed(data)
        except MalformedBody as error:
            exchange.fail(reason_of(error), str(error))
            return
        if body.done:
            self._body = None
            self._buffer = body.rest
            self.due = NEVER
        else:
            self._arm(exchange.route.settings.idle_timeout)
            if body.has_more:
                self._end_turn()
        if exchange.upload is not None:
            exchange.upload.arrives(payload, body.done)

    def _hand_over(self, data: bytes) -> None:
        clients = self._clients
        self._context.outbox.flush()
        self._context.wheel.forget(self)
        self.lingering = True
        self._release(TURN_OVER)
        HandedOver(clients.handover(), lambda: clients.connection_ended(self)).begin(self.transport, data)

    # -- for the exchange

    def exchange_ended(self, exchange: object, keep: bool, request_ended: bool, now: float) -> None:
        """The reply is written. Next request, or a close that lets the client read it."""
        ended = self.exchange
        if ended is None or ended is not exchange:
            return
        self.exchange = None
        request = ended.request
        self._next_or_close(keep and keeps_open(request.line, request.head), request_ended, now)

    def _next_or_close(self, keep: bool, request_ended: bool, now: float) -> None:
        self._body = None
        if self.transport.is_closing():
            return
        if not request_ended:
            self._linger()
        elif not keep and self._buffer:  # and more may be on its way
            self._linger(self._clients.keepalive_timeout if self.is_stalled else _LINGER)
        elif not keep:
            self._close()
        else:
            self._head_since = NEVER
            self._context.wheel.arm(self, now + self._clients.keepalive_timeout)
            if not self.is_stalled:
                self._serve_next()

    def _serve_next(self) -> None:
        """Read on, beginning with what a pipelining client has sent already."""
        if self._paused:
            self._release(UPLOAD | PIPELINE)
        if self._buffer and not self._advancing:
            data, self._buffer = bytes(self._buffer), b""
            self._advance(data)

    def _arm(self, seconds: float) -> None:
        self._context.wheel.arm(self, self._context.clock() + seconds)

    def refuse(self, request: Request, reason: Reason, detail: str, request_ended: bool) -> None:
        """Answer in slb's own name. The connection goes on where the whole request was read."""
        self.exchange = None
        self._answer(reason, detail, request.id, request.line, request.head, request_ended)

    def _answer(
        self, reason: Reason, detail: str, request_id: bytes, line: RequestLine, head: RequestHead, ended: bool
    ) -> None:
        context = self._context
        keep = ended and not context.draining and not self.is_last
        connection = connection_line(line, head, keep)
        message = answer(reason, detail, request_id, connection, line.method != b"HEAD", context.tells_all)
        context.outbox.post(self.transport, message)
        self._next_or_close(keep and keeps_open(line, head), ended, context.clock())

    def becomes_tunnel(self) -> bytes:
        """HTTP ends here: the transport is somebody else's. What the client has already said behind its request."""
        self._context.outbox.flush()  # what was posted to either side
        self._context.wheel.forget(self)
        self._clients.disconnects.forget(self.transport)  # a client that closes one half of a tunnel has not left
        self._paused = 0
        early, self._buffer = bytes(self._buffer), b""
        return early

    def tunnel_ended(self) -> None:
        """Both sides are gone."""
        self.exchange = None
        self.lingering = True
        self._forget()

    def reply_broken(self) -> None:
        """The reply cannot be ended, and the client must see that."""
        self._context.outbox.flush()
        if self.exchange is not None and self.exchange.request.line.minor == 0:
            reset_at_end(self.transport)
        self.exchange = None
        self._forget()
        self.transport.abort()

    # -- flow and end

    def pause_writing(self) -> None:
        self.is_stalled, self._taken = True, -1
        exchange = self.exchange
        if exchange is not None:
            self._arm(min(_FIRST_LOOK, exchange.route.settings.idle_timeout))
            if exchange.connection is not None:
                exchange.connection.pause_reading()

    def resume_writing(self) -> None:
        self.is_stalled = False
        exchange = self.exchange
        if exchange is not None:
            if self._body is None:
                self.due = NEVER
            else:
                self._arm(exchange.route.settings.idle_timeout)
            if exchange.connection is not None:
                exchange.connection.resume_reading()
        elif not self.lingering:
            self._serve_next()

    def expired(self) -> None:
        if self.lingering:
            self.transport.abort()
        elif self.exchange is not None:
            self._late(self.exchange)
        elif self._buffer:
            self._refuse_unread(Refused(REQUEST_TIMEOUT, "the request's head did not come in time"))
        else:
            self._close()

    def _late(self, exchange: Exchange) -> None:
        if self.is_stalled:  # nothing may leave here for long while it reads what the kernel holds
            before, self._taken = self._taken, acknowledged(self.transport)
            goes_on = before != self._taken
        else:
            goes_on = self.upload_is_held
        if goes_on:
            self._arm(exchange.route.settings.idle_timeout)
        else:
            exchange.client_late()

    def _refuse_unread(self, refusal: Refused) -> None:
        """Refuse what could not be read as a request: nothing behind it on the connection means anything."""
        context = self._context
        seconds = max(0.0, context.clock() - self._head_since)
        context.outbox.post(self.transport, unreadable(context, refusal, self.peer.address, seconds))
        self._linger()

    def _linger(self, seconds: float = _LINGER) -> None:
        """Say that nothing more comes from here, and let the client read that before the connection ends."""
        self.lingering = True
        self._buffer = b""
        self._context.outbox.flush()
        self._release(UPLOAD | PIPELINE)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:  # TLS: its close says so, and reads on until the client has closed too
            self.transport.close()
        self._arm(seconds)

    def _discard(self, data: bytes) -> None:
        self._lingered += len(data)
        if self._lingered > _LINGER_BYTES:
            self.transport.abort()

    def _close(self) -> None:
        self.lingering = True
        self._arm(self._clients.settings.keepalive_timeout)
        self._context.outbox.flush()
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being served, and nothing of a request has come."""
        return self.exchange is None and not self.lingering and not self._buffer

    def close_when_idle(self) -> None:
        """Draining: end now if nothing is being served; else the reply under way says that it is the last."""
        if self.is_idle:
            self._close()

    def _forget(self) -> None:
        self._context.wheel.forget(self)
        self._clients.connection_ended(self)

    def eof_received(self) -> None:
        """Who says no more takes its request back. What was written before may be read still, but not for ever: a
        client that never does would keep this connection."""
        if (exchange := self.exchange) is not None:
            exchange.client_lost()
            if exchange.status:
                self.reply_broken()
            else:
                self.exchange = None
                self._close()

    def connection_lost(self, error: Exception | None) -> None:
        self._clients.disconnects.forget(self.transport)
        self._forget()
        self._buffer = b""
        self.lingering = True
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_lost()
