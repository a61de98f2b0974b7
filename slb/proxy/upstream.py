"""Connections to upstreams: made, kept, lent to one exchange at a time, and read as replies."""

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.proxy.body import Body, ChunkedBody, CountedBody, MalformedBody, UntilCloseBody, body_of
from slb.proxy.deadlines import Timed
from slb.proxy.plane import Plane
from slb.proxy.replies import MalformedReply, ReplyHead
from slb.proxy.tls import SHUTDOWN_TIMEOUT, UpstreamTls, fault

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange

_BUFFER = 64 * 1024
_BARE_LF = re.compile(rb"(?<!\r)\n")


class ConnectFailed(Exception):
    """No connection to an upstream; the message says to which address and why."""


class UpstreamConnection(asyncio.Protocol, Timed):
    """One connection. Idle in its pool, or carrying one exchange; whatever it says unasked ends it."""

    __slots__ = (
        "_body",
        "_ended",
        "_head",
        "_partial",
        "_paused",
        "counted",
        "exchange",
        "pool",
        "transport",
        "used",
    )

    def __init__(self, pool: "Pool") -> None:
        Timed.__init__(self)
        self.pool = pool
        self.exchange: Exchange | None = None
        self.used = False
        self.counted = False
        self._ended = False
        self._partial = b""
        self._head: ReplyHead | None = None
        self._body: Body | None = None
        self._paused = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self.transport = cast("asyncio.Transport", transport)  # uvloop registers with no ABC
        transport.set_write_buffer_limits(high=_BUFFER)

    # -- lent to an exchange

    def carry(self, exchange: "Exchange", data: bytes, first_byte_due: float) -> None:
        """Send a request's head (and what there is of its body) and expect its reply."""
        self.exchange = exchange
        self.transport.write(data)
        self.pool.wheel.arm(self, first_byte_due)

    def abandon(self) -> None:
        """The exchange has no more use for this connection, and it is in no state to serve another."""
        self.exchange = None
        self.pool.wheel.forget(self)
        self.transport.abort()

    def pause_reading(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # -- the upstream's side

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.close()
        elif self._body is not None:
            self._read_body(exchange, self._body, data)
        else:
            self._read_head(exchange, data)

    def _read_head(self, exchange: "Exchange", data: bytes) -> None:
        if self._partial:
            data, self._partial = self._partial + data, b""
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or end > self.pool.max_head:
            self._partial = data
            if len(data) > self.pool.max_head:
                exchange.reply_malformed(self, "the reply's head is too long")
            elif _BARE_LF.search(data):
                exchange.reply_malformed(self, "a line ends without CR")
            return
        try:
            head = self.pool.reply_heads.get(data[:end])
        except MalformedReply as error:
            exchange.reply_malformed(self, str(error))
            return
        if head.status < 200:
            self._interim(exchange, head, data[end:])
            return
        length = 0 if exchange.method == b"HEAD" else head.length
        if len(data) - end == length:  # all of it came at once, as small replies do
            exchange.reply_begins(self, head, data[end:], True)
            return
        self._body = body_of(length)
        self._head = head
        self._read_body(exchange, self._body, data[end:])

    def _interim(self, exchange: "Exchange", head: ReplyHead, rest: bytes) -> None:
        if head.status == 101:
            if not exchange.switches(self, head, rest):
                exchange.reply_malformed(self, "101 to a protocol nobody asked for")
            return
        if not exchange.interim(head):
            exchange.reply_malformed(self, "one interim reply after another and no final one")
        elif rest:
            self._read_head(exchange, rest)

    def _read_body(self, exchange: "Exchange", body: Body, data: bytes) -> None:
        """Framing is read before anything of `data` is passed on, so that a reply that is broken from its start
        is a 502 and not half a 200."""
        try:
            payload = body.feed(data)
        except MalformedBody as error:
            exchange.reply_malformed(self, str(error))
            return
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
            self.resume_reading()
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
        """HTTP ends here: the transport is somebody else's from now on."""
        self.exchange = None
        self.pool.discard(self)

    def tunnel_ended(self) -> None:
        """And is gone."""
        self.pool.ended(self)

    def close(self) -> None:
        """Close at once: an upstream that does not read what is left to send must not keep the connection."""
        self.pool.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def abort_if_made(self) -> None:
        """End a connection nobody waits for any more, however far it got."""
        transport = getattr(self, "transport", None)
        if transport is not None:
            transport.abort()

    def eof_received(self) -> None:
        """The upstream said that this is the end. Over TLS a connection can end without: cut off by somebody."""
        self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.ended(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.upstream_lost(self, clean=error is None and self._ended, heard=bool(self._partial))

    @property
    def ends_with_connection(self) -> bool:
        """Whether the reply being read has no other end than the connection's."""
        return isinstance(self._body, UntilCloseBody)

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_held(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.upload_held(False)

    def expired(self) -> None:
        if self.exchange is not None:
            self.exchange.reply_late(self)
        else:
            self.close()


class Pool:
    """The connections to one upstream. Idle ones are taken last in, first out: the warmest; the rest may age."""

    def __init__(self, plane: Plane, upstream: LiveUpstream, tls: UpstreamTls) -> None:
        self.upstream = upstream
        self.wheel = plane.wheel
        self.reply_heads = plane.reply_heads
        self._rules = plane.address_rules
        self._idle: list[UpstreamConnection] = []
        self._open = 0
        self._closed = False
        self._tls = tls
        self.reconfigure(plane.settings)

    def reconfigure(self, settings: Settings) -> None:
        """Let these hold from now on."""
        self.max_head = settings.max_head
        self._keep = settings.upstream_keepalive
        self._keepalive_timeout = settings.upstream_keepalive_timeout
        self._limit = settings.max_upstream_connections

    @property
    def is_full(self) -> bool:
        """Whether the upstream has all the connections it may have, those being made included."""
        return bool(self._limit) and self._open >= self._limit

    def take(self) -> UpstreamConnection | None:
        """An idle connection, no longer the pool's."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Keep an idle connection, or close it where enough are kept."""
        if self._closed or len(self._idle) >= self._keep or connection.transport.is_closing():
            connection.close()
            return
        self._idle.append(connection)
        self.wheel.arm(connection, now + self._keepalive_timeout)

    def discard(self, connection: UpstreamConnection) -> None:
        """The connection is ending; nothing of it is kept."""
        self.wheel.forget(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """The upstream has left: idle connections end now, busy ones with their exchange."""
        self._closed = True
        for connection in list(self._idle):
            connection.close()

    async def connect(self, timeout: float) -> UpstreamConnection:
        """A new connection to the first address that takes one within `timeout` seconds. Raises ConnectFailed."""
        spec = self.upstream.spec
        made: list[UpstreamConnection] = []
        connected = False
        self._open += 1
        try:
            async with asyncio.timeout(timeout):
                connection = await self._connect_to(await self._addresses(spec.host, spec.port), made)
            connected = connection.counted = True
            return connection
        except TimeoutError:
            for attempt in made:
                attempt.abort_if_made()
            raise ConnectFailed(f"{spec.member}: no connection within {timeout:g} s") from None
        finally:
            self._open -= not connected

    def ended(self, connection: UpstreamConnection) -> None:
        """A connection is gone for good, whoever had it last."""
        self.discard(connection)
        if connection.counted:
            connection.counted = False
            self._open -= 1

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host` that may be connected to: the rules hold for each, each time."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectFailed(f"{self.upstream.member}: {error.strerror or error}") from None
        addresses = [str(info[4][0]) for info in found]
        refusals = [self._rules.refusal(address, port) for address in addresses]
        allowed = [address for address, refusal in zip(addresses, refusals, strict=True) if refusal is None]
        if not allowed:
            raise ConnectFailed(f"{self.upstream.member}: {refusals[0] if refusals else 'no address'}")
        return allowed

    async def _connect_to(self, addresses: Sequence[str], made: list[UpstreamConnection]) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        spec = self.upstream.spec
        secure = await self._tls.context() if spec.scheme == "https" else None
        failures: list[str] = []
        for address in addresses:
            connection = UpstreamConnection(self)
            made.append(connection)
            try:
                await loop.create_connection(
                    lambda connection=connection: connection,
                    address,
                    spec.port,
                    ssl=secure,
                    server_hostname=spec.host if secure else None,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT if secure else None,
                )
            except OSError as error:  # ssl.SSLError is one
                failures.append(f"{address} port {spec.port}: {fault(error)}")
                continue
            if not connection.transport.is_closing():
                return connection
            failures.append(f"{address} port {spec.port}: the connection was closed")
        raise ConnectFailed(f"{spec.member}: {'; '.join(failures)}")


class Pools:
    """member -> Pool; follows the mirror's swaps."""

    def __init__(self, plane: Plane, tls: UpstreamTls) -> None:
        self._plane = plane
        self._tls = tls
        self._pools: dict[str, Pool] = {}
        plane.mirror.on_swap(self.drop)

    def of(self, upstream: LiveUpstream) -> Pool:
        """The upstream's pool; an upstream that left and came back is another one, with a pool of its own."""
        pool = self._pools.get(upstream.member)
        if pool is None or pool.upstream is not upstream:
            pool = Pool(self._plane, upstream, self._tls)
            if self._plane.mirror.upstream(upstream.member) is upstream:
                self._pools[upstream.member] = pool
        return pool

    def reconfigure(self, settings: Settings) -> None:
        """Let these hold for every pool."""
        for pool in self._pools.values():
            pool.reconfigure(settings)

    def drop(self, members: Sequence[str]) -> None:
        """These upstreams have left."""
        for member in members:
            pool = self._pools.pop(member, None)
            if pool is not None:
                pool.close()

    def close(self) -> None:
        self.drop(list(self._pools))
