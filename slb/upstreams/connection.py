"""A connection to an upstream: lent to one exchange at a time."""

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

from slb.upstreams.early_reply import LastWords, duplicate_socket, unacknowledged, unread_in
from slb.upstreams.interfaces import Carried, Lender
from slb.upstreams.reply_reader import HELD_BY_CLIENT, ReplyReader

_BUFFER = 64 * 1024
_LONG = 16 * 1024
"""Bytes of a request that is sent in one piece, from which on its reply may come before it has been read."""


class UpstreamConnection(ReplyReader):
    """One connection. Idle in its pool, or carrying one exchange; whatever it sends unasked ends it. `unsent`: it
    ended before a byte of the request it carries was written."""

    __slots__ = ("_duplicate", "_ended", "_is_long", "_raw", "counted", "unsent", "used")
    pool: Lender["UpstreamConnection"]

    def __init__(self, pool: Lender["UpstreamConnection"]) -> None:
        super().__init__(pool)
        self.used = False
        self.counted = False
        self.unsent = False
        self._ended = False
        self._duplicate: socket.socket | None = None
        self._raw: asyncio.Transport | None = None
        self._is_long = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=_BUFFER)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS has shaken hands: `transport` is what speaks through it."""
        self._raw = self.transport
        self.connection_made(transport)

    # -- lent to an exchange

    def carry(self, exchange: Carried, data: bytes, ended: bool, due: float, to_head: bool) -> None:
        """Send a request's head and what there is of its body (`ended`: that is all of it); expect its reply until
        `due`, by the wheel's clock. `to_head`: the method is HEAD, and the reply has no body."""
        self.exchange = exchange
        self._to_head = to_head
        outbox = self.pool.outbox
        self._posted_at = outbox.flushes
        self.unsent = False
        self._is_long = not ended or len(data) > _LONG
        if not ended:
            self._expect_early_reply()
        outbox.post(self.transport, data)
        self.pool.wheel.arm(self, due)

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
        if not self._paused & HELD_BY_CLIENT and not self.transport.is_closing():
            self._pause(HELD_BY_CLIENT)
            if self.exchange is not None:
                self.exchange.client_holds_back()

    def resume_reading(self) -> None:
        """It takes more again."""
        if self._paused:
            self._resume(HELD_BY_CLIENT)

    def reply_ended(self, reusable: bool, now: float) -> None:
        """The exchange is over. Back to the pool, unless something is left on the wire in either direction."""
        body, self._body = self._body, None
        self.exchange = None
        self.used = True
        if self._paused:
            self._resume(HELD_BY_CLIENT)
        if self._duplicate is not None:
            self._close_duplicate()
        reusable = reusable and not (self._is_long and self._is_on_its_way())
        if reusable and (body is None or not body.rest):
            self.pool.put(self, now)
        else:
            self.close()

    # -- the upstream's side

    def _spoke_unasked(self, exchange: Carried) -> None:
        """Before its request has left: whatever this is, it is no answer to it."""
        self.exchange = None
        self.unsent = True
        self.transport.abort()
        self.pool.ended(self)  # at once: the one that takes its place may be the last there is room for
        exchange.upstream_lost(clean=False, partial=False)

    @property
    def destination(self) -> str:
        """The upstream, and the very address where it goes by a name: a name can be many hosts."""
        member = self.pool.upstream.member
        peer = self.transport.get_extra_info("peername")
        return f"{member} ({peer[0]} port {peer[1]})" if peer and str(peer[0]) not in member else member

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
            exchange.upstream_lost(clean=error is None and self._ended, partial=bool(self._partial))

    def _is_on_its_way(self) -> bool:
        """Whether some of the request has not come to the upstream's machine, though the reply has ended: the
        upstream has not read the body, and may close on the rest of it at any moment. What the transport of TLS
        has passed on is counted by the kernel alone."""
        transport = self.transport
        return transport.is_closing() or transport.get_write_buffer_size() > 0 or unacknowledged(transport) > 0

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

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_is_held_back(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_is_held_back(False)

    def expired(self) -> None:
        if self.exchange is not None:
            self.exchange.reply_late()
        else:
            self.close()
