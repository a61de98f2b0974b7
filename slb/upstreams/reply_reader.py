"""The replies on one connection to an upstream: from bytes to calls of the exchange."""

import asyncio
import re

from slb.upstreams.body import Body, ChunkedBody, CountedBody, MalformedBody, UntilCloseBody, body_of
from slb.upstreams.flow import FULL_READ, Flow, appended
from slb.upstreams.interfaces import Carried, ReplyParts
from slb.upstreams.replies import MalformedReply, ReplyHead

HELD_BY_CLIENT = 2
"""A reason why reading is paused: the client takes no more."""
_BARE_LF = re.compile(rb"(?<!\r)\n")


class ReplyReader(asyncio.Protocol, Flow):
    """`exchange`: the one that waits for a reply, or None; `pool`: what all connections to the upstream share."""

    __slots__ = ("_body", "_head", "_partial", "_posted_at", "_to_head", "exchange", "pool")

    def __init__(self, pool: ReplyParts) -> None:
        Flow.__init__(self)
        self.pool = pool
        self.exchange: Carried | None = None
        self._partial = b""
        self._head: ReplyHead | None = None
        self._body: Body | None = None
        self._posted_at = -1
        self._to_head = False

    def close(self) -> None:
        raise NotImplementedError

    def _spoke_unasked(self, exchange: Carried) -> None:
        """Bytes have come before the request of `exchange` was written."""
        raise NotImplementedError

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

    def _read_head(self, exchange: Carried, data: bytes) -> None:
        seen = 0
        if self._partial:  # which is neither searched nor copied again: it may come byte by byte
            seen = len(self._partial)
            data, self._partial = appended(self._partial, data), b""
        end = data.find(b"\r\n\r\n", seen and max(0, seen - 3)) + 4
        if end < 4 or end > self.pool.max_head:
            self._partial = data
            if len(data) > self.pool.max_head:
                exchange.reply_malformed("the reply's head is too long", blame=False)
            elif _BARE_LF.search(data, seen):
                exchange.reply_malformed("a line ends without CR")
            return
        if seen:
            data = bytes(data)
        try:
            head = self.pool.reply_heads[data[:end]]
        except MalformedReply as error:
            exchange.reply_malformed(str(error))
            return
        if head.status < 200:
            self._interim(exchange, head, data[end:])
            return
        length = 0 if self._to_head else head.length
        if len(data) - end == length:  # all of it came at once, as small replies do
            exchange.reply_begins(head, data[end:], True)
            return
        self._body = body_of(length)
        self._head = head
        self._read_body(exchange, self._body, data[end:])

    def _interim(self, exchange: Carried, head: ReplyHead, rest: bytes) -> None:
        if head.status == 101:
            if not exchange.switches(head, rest):
                exchange.reply_malformed("101 to a protocol that was not asked for")
            return
        if not exchange.interim(head):
            exchange.reply_malformed("one interim reply after another and no final one")
            return
        if rest:
            self._read_head(exchange, rest)

    def _read_body(self, exchange: Carried, body: Body, data: bytes) -> None:
        """Framing is read before anything is passed on: a reply that is broken from its start is a 502."""
        try:
            payload = body.feed(data)
        except MalformedBody as error:
            exchange.reply_malformed(str(error))
            return
        if body.has_more:
            self._end_turn()
        load_stats = self.pool.upstream.load_stats
        if load_stats is not None:
            load_stats.progresses()
        head, self._head = self._head, None
        if head is not None:
            exchange.reply_begins(head, payload, body.done)
        elif payload or body.done:
            exchange.reply_continues(payload, body.done)

    def _take_all_chunks(self) -> None:
        while self._body is not None and self._body.has_more and self.exchange is not None:
            self.go_on()

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection ends the reply."""
        return isinstance(self._body, UntilCloseBody)

    @property
    def owed(self) -> int:
        """Bytes still to come of a reply of known length."""
        return self._body.left if isinstance(self._body, CountedBody) else 0

    @property
    def trailers(self) -> list[bytes]:
        """The trailer lines of a reply that has ended."""
        return self._body.trailers if isinstance(self._body, ChunkedBody) else []
