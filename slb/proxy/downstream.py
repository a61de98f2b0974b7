"""The requests on one client connection: where a request's life begins.

At most one exchange at a time; what a pipelining client sends meanwhile waits. After a hand-over the connection
belongs to the applications: they answer one request and close.
"""

import asyncio

from slb.errors import REQUEST_TIMEOUT, Refused
from slb.proxy.client_connection import BUFFER, ClientConnection
from slb.proxy.client_flow import PIPELINE, TURN, UPLOAD
from slb.proxy.clients import Clients
from slb.proxy.disconnect_watcher import acknowledged
from slb.proxy.exchange import Exchange
from slb.proxy.handed_over import HandedOver
from slb.proxy.headers import RequestHead
from slb.proxy.reader import reason_of, without_empty_lines
from slb.proxy.refusal import no_way, note
from slb.proxy.request import Request
from slb.proxy.states import CLIENT, ClientEvent, ClientState
from slb.proxy.target import RequestLine
from slb.upstreams.body import Body, MalformedBody
from slb.upstreams.deadlines import NEVER
from slb.upstreams.flow import FULL_READ, TURN_OVER, appended

_FIRST_LOOK = 1.0
"""Seconds until a client that does not read is looked at; from then on it has the route's `idle_timeout`."""

_READING, _REQUEST = ClientState.READING, ClientEvent.REQUEST


class Downstream(ClientConnection):
    """Reads requests, refuses malformed ones, and starts an exchange for each."""

    __slots__ = ("_advancing", "_reader", "_served_so_far", "_taken")

    def __init__(self, clients: "Clients[Downstream]") -> None:
        super().__init__(clients)
        self._advancing = False
        self._served_so_far = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._reader = self._clients.readers[self.peer.is_trusted]

    def data_received(self, data: bytes) -> None:
        if len(data) > FULL_READ:
            self._end_turn()
        if self.state is _READING:
            seen = len(self._buffer)
            if not seen:
                self._advance(data)
            elif self._paused:  # there may be whole requests among it, which wait for their turn
                self._buffer = appended(self._buffer, data)
            else:
                data, self._buffer = appended(self._buffer, data), b""
                self._advance(data, seen)
        elif self.exchange is None:
            self._discard(data)
        elif self._body is not None:
            self._read_body(self.exchange, self._body, data)
        else:
            self._buffer = appended(self._buffer, data)
            if len(self._buffer) > BUFFER:
                self._hold(PIPELINE)

    def go_on(self) -> None:
        if self.state is _READING:
            if not self.is_stalled:
                self._serve_next()
        elif self.exchange is not None and self._body is not None and self._body.has_more:
            self._read_body(self.exchange, self._body, b"")

    # -- heads

    def _advance(self, data: bytes, seen: int = 0) -> None:
        """Serve what stands at the front of `data` until a request is under way or more must come; nothing while
        the client does not read. `seen`: bytes that were searched for the head's end before."""
        self._advancing = True
        until = 0.0
        try:
            while data and self.state is _READING and not self.is_stalled:
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
                    if not self.transport.is_closing():  # else its end has come, and is not known here yet
                        self._hand_over(data)
                    break
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
        waits = self.exchange is not None
        self._buffer = data if waits or self.state is _READING else b""
        if len(data) > BUFFER and (waits or self.is_stalled):
            self._hold(PIPELINE)

    def _await_head(self, data: bytes, seen: int) -> bytes:
        data = self._reader.partial(data, seen)
        if self._head_since is NEVER:
            self._await_request()
        return data

    def _serve_next(self) -> None:
        if self._paused:
            self._release(UPLOAD | PIPELINE)
        if self._buffer and not self._advancing and not self.transport.is_closing():
            data, self._buffer = bytes(self._buffer), b""
            self._advance(data)

    def _hand_over(self, data: bytes) -> None:
        clients = self._clients
        self._context.outbox.flush()
        self._context.wheel.forget(self)
        self.state = CLIENT[self.state][ClientEvent.HAND_OVER]
        self._release(TURN_OVER)
        HandedOver(clients.handover(), lambda: clients.connection_ended(self)).begin(self.transport, data)

    # -- requests and their bodies

    def _serve(self, line: RequestLine, head: RequestHead, rest: bytes) -> bytes:
        context, clients, route = self._context, self._clients, line.route
        body, payload = None, b""
        if head.length:
            body, payload, rest = self._reader.body(line, head, rest)
        self._buffer = rest  # which an answer given at once must know of, should it be the last
        request_id = head.request_id or context.identity.new_request_id()
        if route is None or head.looped:
            reason, detail = no_way(head.looped, clients.mirror.ready)
            note(context, reason, detail, request_id, self.peer.address, 0.0, line)
            self._answer(reason, detail, request_id, line, head, body is None)
            return rest
        if clients.max_requests:
            self._served_so_far += 1
            self.is_last = self._served_so_far >= clients.max_requests
        now = context.clock()
        request = Request(line, head, self.peer, route, request_id)
        context.until_traced -= 1
        make = context.make_exchange if head.trace or context.until_traced <= 0 else Exchange
        exchange: Exchange = make(context, self, request, now)
        self.exchange = exchange
        self.state = CLIENT[self.state][_REQUEST]
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

    # -- clients that do not read, deadlines

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
        elif self.state is _READING:
            self._serve_next()

    def expired(self) -> None:
        if self.exchange is not None:
            self._late(self.exchange)
        elif self.state is not _READING:
            self.transport.abort()
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
