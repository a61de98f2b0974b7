"""A connection to an upstream: lent to one exchange at a time, and read as replies."""

import asyncio
import re
import socket
from collections.abc import Iterator
from typing import cast

from slb.proxy.body import Body, ChunkedBody, CountedBody, MalformedBody, UntilCloseBody, body_of
from slb.proxy.early_reply import LastWords, duplicate_socket, unread_in
from slb.proxy.flow import FULL_READ, Flow
from slb.proxy.held import appended
from slb.proxy.interfaces import Carried, Lender
from slb.proxy.replies import MalformedReply, ReplyHead

_BUFFER = 64 * 1024
_CLIENT = 2
"""Why reading is paused, besides a turn that is over: the client takes no more."""
_BARE_LF = re.compile(rb"(?<!\r)\n")


class UpstreamConnection(asyncio.Protocol, Flow):
    """One connection. Idle in its pool, or carrying one exchange; whatever it sends unasked ends it. `unsent`: it
    ended before a byte of the request it carries was written."""

    __slots__ = (
        "_body",
        "_duplicate",
        "_ended",
        "_head",
        "_partial",
        "_posted_at",
        "_raw",
        "counted",
        "exchange",
        "pool",
        "unsent",
        "used",
    )

    def __init__(self, pool: Lender["UpstreamConnection"]) -> None:
        Flow.__init__(self)
        self.pool = pool
        self.exchange: Carried[UpstreamConnection] | None = None
        self.used = False
        self.counted = False
        self._ended = False
        self._partial = b""
        self._head: ReplyHead | None = None
        self._body: Body | None = None
        self._posted_at = -1
        self._duplicate: socket.socket | None = None
        self._raw: asyncio.Transport | None = None
        self.unsent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=_BUFFER)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS has shaken hands: `transport` is what speaks through it."""
        self._raw = self.transport
        self.connection_made(transport)

    # -- lent to an exchange

    def carry(
        self, exchange: Carried["UpstreamConnection"], data: bytes, ended: bool, first_byte_due: float
    ) -> None:
        """Send a request's head and what there is of its body (`ended`: that is all of it); expect its reply."""
        self.exchange = exchange
        outbox = self.pool.outbox
        self._posted_at = outbox.flushes
        self.unsent = False
        if not ended:
            self._expect_early_reply()
        outbox.post(self.transport, data)
        self.pool.wheel.arm(self, first_byte_due)

    def _expect_early_reply(self) -> None:
        self._duplicate = duplicate_socket(self.transport)
        raw, self._raw = self._raw, None
        if raw is not None:  # once: it stays for as long as the connection does
            raw.set_protocol(LastWords(cast("asyncio.BufferedProtocol", raw.get_protocol()), self._unread))

    def abandon(self) -> None:
        """The exchange has no more use for this connection, and it is in no state to serve another."""
        self.exchange = None
        self.pool.wheel.forget(self)
        self._close_duplicate()
        self.transport.abort()

    def pause_reading(self) -> None:
        """The client takes no more for now, and from here on it decides how long the reply takes."""
        if not self._paused & _CLIENT and not self.transport.is_closing():
            self._pause(_CLIENT)
            if self.exchange is not None:
                self.exchange.client_holds_back()

    def resume_reading(self) -> None:
        """It takes more again."""
        if self._paused:
            self._resume(_CLIENT)

    # -- the upstream's side

    def data_received(self, data: bytes) -> None:
        if len(data) > FULL_READ:
            self._end_turn()
        exchange = self.exchange
        if exchange is None:
            self.close()
        elif self._body is not None:
            self._read_body(exchange, self._body, data)
        elif self._posted_at == self.pool.outbox.flushes:
            self._spoke_unasked(exchange)
        else:
            self._read_head(exchange, data)

    def go_on(self) -> None:
        if self._body is not None and self._body.has_more and self.exchange is not None:
            self._read_body(self.exchange, self._body, b"")

    def _spoke_unasked(self, exchange: Carried["UpstreamConnection"]) -> None:
        """Before its request has left: whatever this is, it is no answer to it."""
        self.exchange = None
        self.unsent = True
        self.transport.abort()
        self.pool.ended(self)  # at once: the one that takes its place may be the last there is room for
        exchange.upstream_lost(self, clean=False, heard=False)

    def _read_head(self, exchange: Carried["UpstreamConnection"], data: bytes) -> None:
        seen = 0
        if self._partial:  # which is neither searched nor copied again: it may come byte by byte
            seen = len(self._partial)
            data, self._partial = appended(self._partial, data), b""
        end = data.find(b"\r\n\r\n", seen and max(0, seen - 3)) + 4
        if end < 4 or end > self.pool.max_head:
            self._partial = data
            if len(data) > self.pool.max_head:
                exchange.reply_malformed(self, "the reply's head is too long", blame=False)
            elif _BARE_LF.search(data, seen):
                exchange.reply_malformed(self, "a line ends without CR")
            return
        if seen:
            data = bytes(data)
        try:
            head = self.pool.reply_heads[data[:end]]
        except MalformedReply as error:
            exchange.reply_malformed(self, str(error))
            return
        if head.status < 200:
            self._interim(exchange, head, data[end:])
            return
        length = 0 if exchange.request.line.method == b"HEAD" else head.length
        if len(data) - end == length:  # all of it came at once, as small replies do
            exchange.reply_begins(self, head, data[end:], True)
            return
        self._body = body_of(length)
        self._head = head
        self._read_body(exchange, self._body, data[end:])

    def _interim(self, exchange: Carried["UpstreamConnection"], head: ReplyHead, rest: bytes) -> None:
        if head.status == 101:
            if not exchange.switches(self, head, rest):
                exchange.reply_malformed(self, "101 to a protocol that was not asked for")
            return
        if not exchange.interim(head):
            exchange.reply_malformed(self, "one interim reply after another and no final one")
            return
        settings = exchange.request.route.settings
        if settings.interim_extends:
            self.pool.wheel.arm(self, self.pool.wheel.now() + settings.first_byte_timeout)
        if rest:
            self._read_head(exchange, rest)

    def _read_body(self, exchange: Carried["UpstreamConnection"], body: Body, data: bytes) -> None:
        """Framing is read before anything of `data` is passed on, so that a reply that is broken from its start
        is a 502 and not half a 200."""
        try:
            payload = body.feed(data)
        except MalformedBody as error:
            exchange.reply_malformed(self, str(error))
            return
        if body.has_more:
            self._end_turn()
        load_stats = self.pool.upstream.load_stats
        if load_stats is not None:
            load_stats.hear()
        head, self._head = self._head, None
        if head is not None:
            exchange.reply_begins(self, head, payload, body.done)
        elif payload or body.done:
            exchange.reply_continues(self, payload, body.done)

    def reply_ended(self, reusable: bool, now: float) -> None:
        """The exchange is over. Back to the pool, unless something is left on the wire in either direction."""
        body, self._body = self._body, None
        self.exchange = None
        self.used = True
        if self._paused:
            self._resume(_CLIENT)
        if self._duplicate is not None:
            self._close_duplicate()
        if reusable and (body is None or not body.rest):
            self.pool.put(self, now)
        else:
            self.close()

    @property
    def destination(self) -> str:
        """The upstream, and the very address where it goes by a name: a name can be many hosts."""
        member = self.pool.upstream.member
        peer = self.transport.get_extra_info("peername")
        return f"{member} ({peer[0]} port {peer[1]})" if peer and str(peer[0]) not in member else member

    @property
    def owed(self) -> int:
        """Bytes still to come of a reply of known length."""
        return self._body.left if isinstance(self._body, CountedBody) else 0

    @property
    def trailers(self) -> list[bytes]:
        """The trailer lines of a reply that has ended, as the upstream wrote them."""
        return self._body.trailers if isinstance(self._body, ChunkedBody) else []

    def becomes_tunnel(self) -> None:
        """HTTP ends here: the transport is the tunnel's from now on."""
        self.exchange = None
        self._paused = 0
        self.pool.discard(self)

    def tunnel_ended(self) -> None:
        """The tunnel's transport has ended."""
        self.pool.ended(self)

    def close(self) -> None:
        """Close at once: an upstream that does not read what is left to send must not keep the connection."""
        self.pool.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def abort_if_made(self) -> None:
        """End a connection that is of no use any more, however far it got."""
        transport = getattr(self, "transport", None)
        if transport is not None:
            transport.abort()

    def eof_received(self) -> None:
        """The upstream has ended its side. Over TLS a connection can end without that: it was cut off."""
        self._ended = True
        self.unsent = self._posted_at == self.pool.outbox.flushes
        if self.transport.get_write_buffer_size():  # it would end once all of that is read, if ever
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.ended(self)
        self._take_all_chunks()
        for data in self._unread():
            self.data_received(data)
            self._take_all_chunks()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.upstream_lost(self, clean=error is None and self._ended, heard=bool(self._partial))

    def _take_all_chunks(self) -> None:
        """There is no further turn."""
        while self._body is not None and self._body.has_more and self.exchange is not None:
            self.go_on()

    def _unread(self) -> Iterator[bytes]:
        """A write can end the connection before what the upstream has said to it was read. Of no use once no
        exchange waits for it: then the upstream may be alive, and send for ever."""
        exchange = self.exchange
        if self._duplicate is not None and exchange is not None:
            for data in unread_in(self._duplicate):
                yield data
                if self.exchange is not exchange:
                    break
        self._close_duplicate()

    def _close_duplicate(self) -> None:
        duplicate, self._duplicate = self._duplicate, None
        if duplicate is not None:
            duplicate.close()

    @property
    def ends_with_connection(self) -> bool:
        """Whether the reply being read has no other end than the connection's."""
        return isinstance(self._body, UntilCloseBody)

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_is_held_back(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_is_held_back(False)

    def expired(self) -> None:
        if self.exchange is not None:
            self.exchange.reply_late(self)
        else:
            self.close()
