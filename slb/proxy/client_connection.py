"""One client connection, but for the reading of its requests: its limits, its answers, its end."""

import asyncio
from typing import Any, cast

from slb.errors import OVERLOADED, Reason, Refused
from slb.proxy.client_flow import PIPELINE, UPLOAD, ClientFlow
from slb.proxy.clients import Clients
from slb.proxy.disconnect_watcher import reset_at_end
from slb.proxy.exchange import Exchange
from slb.proxy.headers import RequestHead
from slb.proxy.messages import connection_line, keeps_open
from slb.proxy.peer import Peer
from slb.proxy.refusal import answer, unreadable
from slb.proxy.request import Request
from slb.proxy.states import CLIENT, ClientEvent, ClientState
from slb.proxy.target import RequestLine
from slb.upstreams.body import Body
from slb.upstreams.deadlines import NEVER

BUFFER = 64 * 1024
"""Bytes that wait on either side of a connection before its reading is paused."""
_LINGER = 5.0
"""Seconds a client that gets no further answer has to stop sending: closing on unread bytes resets the connection
and can destroy the answer before it is read (RFC 9112, 9.6)."""
_LINGER_BYTES = 64 << 20
"""And how much it may send meanwhile. Many clients see the answer only once their upload has gone through."""

_READING, _SERVING = ClientState.READING, ClientState.SERVING
_SERVED = ClientEvent.SERVED


class ClientConnection(asyncio.Protocol, ClientFlow):
    """`exchange`: the request being served, None between requests. `is_last`: no further request is taken.
    `is_stalled`: the client does not read for now."""

    __slots__ = (
        "_body",
        "_buffer",
        "_clients",
        "_context",
        "_head_since",
        "_lingered",
        "exchange",
        "is_last",
        "is_stalled",
        "peer",
        "state",
    )

    def __init__(self, clients: Clients[Any]) -> None:
        ClientFlow.__init__(self, clients.disconnects)
        self._clients = clients
        self._context = clients.context
        self.state = _READING
        self.exchange: Exchange | None = None
        self.is_last = False
        self.is_stalled = False
        self._body: Body | None = None
        self._buffer = b""
        self._head_since = NEVER
        self._lingered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=BUFFER)
        places = self._clients.places
        self.peer = Peer(transport, self._clients.settings.trusted_proxies)
        if places.take(self, self.peer.address):
            self._await_request()
            return
        self._refuse_unread(Refused(OVERLOADED, "too many connections"))
        if not places.turn_away(self):
            transport.abort()

    def _await_request(self) -> None:
        now = self._head_since = self._context.clock()
        self._context.wheel.arm(self, now + self._clients.settings.head_timeout)

    def _serve_next(self) -> None:
        """Read on, beginning with what a pipelining client has sent already."""
        raise NotImplementedError

    def _arm(self, seconds: float) -> None:
        self._context.wheel.arm(self, self._context.clock() + seconds)

    # -- for the exchange

    def exchange_ended(self, exchange: object, keep: bool, request_ended: bool, now: float) -> None:
        """The reply is written. Read the next request (`keep`), or close once the client has read the reply. `now`:
        seconds."""
        if self.exchange is not exchange:
            return
        self.exchange = self._body = None
        self.state = CLIENT[self.state][_SERVED]
        self._next_or_close(keep, request_ended, now)

    def refuse(self, request: Request, reason: Reason, detail: str, request_ended: bool) -> None:
        """Answer with an error of slb's own. The connection stays open where the whole request was read."""
        self.exchange = self._body = None
        self.state = CLIENT[self.state][_SERVED]
        self._answer(reason, detail, request.id, request.line, request.head, request_ended)

    def becomes_tunnel(self) -> bytes:
        """Give the transport away. Returns the bytes that came behind the request."""
        self._context.outbox.flush()  # what was posted to either side
        self._context.wheel.forget(self)
        self._clients.disconnects.forget(self.transport)  # a client that closes one half of a tunnel has not left
        self.state = CLIENT[self.state][ClientEvent.SWITCH]
        self._paused = 0
        early, self._buffer = bytes(self._buffer), b""
        return early

    def tunnel_ended(self) -> None:
        self.exchange = None
        self._lose()

    def reply_broken(self) -> None:
        """Cut the connection, since the reply cannot be completed."""
        self._context.outbox.flush()
        if self.exchange is not None and self.exchange.request.line.minor == 0:
            reset_at_end(self.transport)
        self.exchange = None
        self.state = CLIENT[self.state][ClientEvent.CLOSE]
        self._forget()
        self.transport.abort()

    # -- what follows an answer

    def _answer(
        self, reason: Reason, detail: str, request_id: bytes, line: RequestLine, head: RequestHead, ended: bool
    ) -> None:
        context = self._context
        keep = ended and not context.draining and not self.is_last
        connection = connection_line(line, head, keep)
        message = answer(reason, detail, request_id, connection, line.method != b"HEAD", context.tells_all)
        context.outbox.post(self.transport, message)
        self._next_or_close(keep and keeps_open(line, head), ended, context.clock())

    def _next_or_close(self, keep: bool, request_ended: bool, now: float) -> None:
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

    def _refuse_unread(self, refusal: Refused) -> None:
        """Refuse what could not be read as a request. What follows on the connection cannot be read either."""
        context = self._context
        seconds = max(0.0, context.clock() - self._head_since)
        context.outbox.post(self.transport, unreadable(context, refusal, self.peer.address, seconds))
        self._linger()

    # -- the end

    def _linger(self, seconds: float = _LINGER) -> None:
        """Send FIN, and leave the client `seconds` to read the answer and close."""
        self.state = CLIENT[self.state][ClientEvent.LINGER]
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
        self.state = CLIENT[self.state][ClientEvent.CLOSE]
        self._arm(self._clients.settings.keepalive_timeout)
        self._context.outbox.flush()
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served, and no part of one has come."""
        return self.state is _READING and not self._buffer

    def close_when_idle(self) -> None:
        if self.is_idle:
            self._close()

    def eof_received(self) -> None:
        """A client that closes its side has given its request up. What was written before may still be read, but
        not for ever: a client that never reads would keep this connection."""
        if (exchange := self.exchange) is not None:
            exchange.client_lost()
            if exchange.status:
                self.reply_broken()
            else:
                self.exchange = None
                self._close()

    def connection_lost(self, error: Exception | None) -> None:
        self._clients.disconnects.forget(self.transport)
        self._buffer = b""
        exchange, self.exchange = self.exchange, None
        self._lose()
        if exchange is not None:
            exchange.client_lost()

    def _lose(self) -> None:
        self.state = CLIENT[self.state][ClientEvent.LOSE]
        self._forget()

    def _forget(self) -> None:
        self._context.wheel.forget(self)
        self._clients.connection_ended(self)
