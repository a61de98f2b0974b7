"""A connection to an upstream: lent to one exchange at a time."""

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

from slb.upstreams.early_reply import LastWords, duplicate_socket, unacknowledged, unread_in
from slb.upstreams.interfaces import Carried, Lender
from slb.upstreams.reach import Lookout, expect_confirmations, is_cut, room_at
from slb.upstreams.reply_reader import HELD_BY_CLIENT, ReplyReader

_BUFFER = 64 * 1024
_LONG = 16 * 1024
"""Bytes of a request that is sent in one piece, from which on its reply may come before it has been read; less
where the upstream has less room."""


class UpstreamConnection(ReplyReader):
    """One connection, idle in its pool or carrying one exchange. Bytes that come unasked end it. `unsent`: it ended
    before any of the request was written. `untaken`: it ended before all of the request was taken. `was_cut`: it
    ended because the network did not carry (reach.py)."""

    __slots__ = (
        "_duplicate",
        "_ended",
        "_is_long",
        "_lookout",
        "_raw",
        "_room",
        "counted",
        "unsent",
        "untaken",
        "used",
        "was_cut",
    )
    pool: Lender["UpstreamConnection"]

    def __init__(self, pool: Lender["UpstreamConnection"]) -> None:
        super().__init__(pool)
        self.used = False
        self.counted = False
        self.unsent = False
        self.untaken = False
        self.was_cut = False
        self._lookout: Lookout | None = None
        self._ended = False
        self._duplicate: socket.socket | None = None
        self._raw: asyncio.Transport | None = None
        self._is_long = False
        self._room = _LONG

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=_BUFFER)
        if self._raw is None:
            own = transport.get_extra_info("socket")
            expect_confirmations(own)
            self._room = room_at(own, _LONG)

    def secured(self, transport: asyncio.Transport) -> None:
        """After the TLS handshake: `transport` is the one that encrypts."""
        self._raw = self.transport
        self.connection_made(transport)

    # -- lent to an exchange

    def carry(self, exchange: Carried, data: bytes, ended: bool, due: float, to_head: bool) -> None:
        """Send a request's head and the part of its body that has come (`ended`: all of it); expect the reply until
        `due`, by the wheel's clock. `to_head`: the method is HEAD, and the reply has no body."""
        self.exchange = exchange
        self._to_head = to_head
        outbox = self.pool.outbox
        self._posted_at = outbox.flushes
        self.unsent = False
        self._is_long = not ended or len(data) > self._room
        if not ended:
            self._expect_early_reply()
        if self._is_long:
            self._lookout = Lookout(self.transport, self.pool.wheel, self._cut)
        outbox.post(self.transport, data)
        self.pool.wheel.arm(self, due)

    def _cut(self) -> None:
        self.was_cut = True
        self.transport.abort()

    def _end_lookout(self) -> None:
        lookout, self._lookout = self._lookout, None
        if lookout is not None:
            lookout.end()

    def _expect_early_reply(self) -> None:
        self._duplicate = duplicate_socket(self.transport)
        raw, self._raw = self._raw, None
        if raw is not None:  # once: it stays for as long as the connection does
            raw.set_protocol(LastWords(cast("asyncio.BufferedProtocol", raw.get_protocol()), self._unread))

    def abandon(self) -> None:
        """Abort the connection: its exchange has ended too early."""
        self.exchange = None
        self.pool.wheel.forget(self)
        self._close_duplicate()
        self._end_lookout()
        self.transport.abort()

    def pause_reading(self) -> None:
        """The client does not read for now."""
        if not self._paused & HELD_BY_CLIENT and not self.transport.is_closing():
            self._pause(HELD_BY_CLIENT)
            if self.exchange is not None:
                self.exchange.client_holds_back()

    def resume_reading(self) -> None:
        if self._paused:
            self._resume(HELD_BY_CLIENT)

    def reply_ended(self, reusable: bool, now: float) -> None:
        """Back to the pool, unless something is left on the wire in either direction."""
        body, self._body = self._body, None
        self.exchange = None
        self.used = True
        if self._paused:
            self._resume(HELD_BY_CLIENT)
        if self._is_long:  # else there is neither
            self._close_duplicate()
            self._end_lookout()
            reusable = reusable and not self._is_on_its_way()
        if reusable and (body is None or not body.rest):
            self.pool.put(self, now)
        else:
            self.close()

    # -- the upstream's side

    def _spoke_unasked(self, exchange: Carried) -> None:
        """Bytes before the request was written are no answer to it."""
        self.exchange = None
        self.unsent = True
        self.transport.abort()
        self.pool.ended(self)  # at once: the one that takes its place may be the last there is room for
        exchange.upstream_lost(clean=False, partial=False)

    @property
    def destination(self) -> str:
        """The upstream; where it goes by a name, with the address, since a name can be many hosts."""
        member = self.pool.upstream.member
        peer = self.transport.get_extra_info("peername")
        return f"{member} ({peer[0]} port {peer[1]})" if peer and str(peer[0]) not in member else member

    def becomes_tunnel(self) -> None:
        """Give the transport away."""
        self.exchange = None
        self._end_lookout()
        self._lookout = Lookout(self.transport, self.pool.wheel, self.transport.abort)
        self._paused = 0
        self.pool.discard(self)

    def tunnel_ended(self) -> None:
        self._end_lookout()
        self.pool.ended(self)

    def close(self) -> None:
        """Close at once, even where the upstream has not read all that was written."""
        self.pool.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def is_made(self) -> bool:
        return hasattr(self, "transport")

    def abort_if_made(self) -> None:
        if self.is_made:
            self.transport.abort()

    def eof_received(self) -> None:
        """The upstream has ended its side. A TLS connection that ends without this was cut."""
        self._ended = True
        self.unsent = self._posted_at == self.pool.outbox.flushes
        if self.transport.get_write_buffer_size():  # it would end once all of that is read, if ever
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.ended(self)
        self._end_lookout()
        self.was_cut = self.was_cut or is_cut(error)
        if self.was_cut:
            self.pool.was_silent()
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
        if transport.is_closing() or transport.get_write_buffer_size() > 0:
            return True
        return unacknowledged(transport.get_extra_info("socket")) > 0

    def _unread(self) -> Iterator[bytes]:
        """What the upstream sent before a failed write ended the connection. Only while its exchange waits: else
        the upstream may send for ever."""
        exchange = self.exchange
        if self._duplicate is not None and exchange is not None:
            for data in unread_in(self._duplicate):
                yield data
                if self.exchange is not exchange:
                    break
            self.untaken = unacknowledged(self._duplicate) > 0
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
