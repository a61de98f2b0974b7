"""The connections to one upstream."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import cast

import structlog

from slb.addresses import AddressRules, is_address
from slb.balance.upstream import LiveUpstream
from slb.config import Settings
from slb.errors import INTERNAL, OVERLOADED, Reason
from slb.lookups import SingleFlight
from slb.routing.mirror import Mirror
from slb.upstreams.connection import UpstreamConnection
from slb.upstreams.deadlines import Wheel
from slb.upstreams.head_cache import HeadCache
from slb.upstreams.outbox import Outbox
from slb.upstreams.reach import UNCONFIRMED, is_cut
from slb.upstreams.replies import ReplyHead
from slb.upstreams.tls import SHUTDOWN_TIMEOUT, UpstreamTls
from slb.upstreams.tls_files import fault

_OUR_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""This machine has no socket to give: no fault of the upstream."""

_PROBED_FOR, _PROBED_AGAIN, _PROBED_AT_LEAST = 1.0, 0.5, 4.0
"""Seconds that a connection to an upstream out of reach may take, or as long as requests wait for one if that is
more; and between two attempts, at first and at most."""

_log = structlog.get_logger("slb.proxy")


class ConnectFailed(Exception):
    """No connection to an upstream; the message says to which address and why. `ours`: the reason to refuse the
    request with, where it is no fault of the upstream. `refused`: nothing listens at any of its addresses;
    `silent`: nothing answers at any; `untried`: the upstream is out of reach, and no connection was tried."""

    def __init__(
        self,
        message: str,
        ours: Reason | None = None,
        refused: bool = False,
        silent: bool = False,
        untried: bool = False,
    ) -> None:
        super().__init__(message)
        self.ours = ours
        self.refused = refused
        self.silent = silent
        self.untried = untried


@dataclass(frozen=True, slots=True)
class PoolParts:
    """What the pools of one instance share."""

    wheel: Wheel
    outbox: Outbox
    reply_heads: HeadCache[ReplyHead]
    address_rules: AddressRules
    tls: UpstreamTls


class Pool:
    """Idle connections are taken last in, first out."""

    def __init__(self, upstream: LiveUpstream, parts: PoolParts, settings: Settings) -> None:
        self.upstream = upstream
        self.wheel = parts.wheel
        self.outbox = parts.outbox
        self.reply_heads = parts.reply_heads
        self._rules = parts.address_rules
        self._tls = parts.tls
        self.idle: list[UpstreamConnection] = []
        self.open = 0
        self._closed = False
        self._is_out_of_reach = False
        self._longest = _PROBED_FOR
        self._probing: asyncio.Task[None] | None = None
        self._connected: Callable[[LiveUpstream], None] | None = None
        self._is_name = not is_address(upstream.spec.host)
        self._lookups: SingleFlight[tuple[str, int], Sequence[str]] = SingleFlight()
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        self.max_head = settings.max_head
        self._keep = settings.upstream_keepalive
        self._keepalive_timeout = settings.upstream_keepalive_timeout
        self._limit = settings.max_upstream_connections

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be, those being made included."""
        return bool(self._limit) and self.open >= self._limit

    @property
    def has_room(self) -> bool:
        """Whether one more request can be sent: a connection is idle, or one may be made."""
        return not self.is_full or any(not each.transport.is_closing() for each in self.idle)

    def take(self) -> UpstreamConnection | None:
        """An idle connection, which is removed from the pool; None where there is none."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Keep an idle connection, or close it where enough are kept."""
        if self._closed or len(self.idle) >= self._keep or connection.transport.is_closing():
            connection.close()
            return
        self.idle.append(connection)
        self.wheel.arm(connection, now + self._keepalive_timeout)

    def discard(self, connection: UpstreamConnection) -> None:
        """The connection is ending: do not lend it any more."""
        self.wheel.forget(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def close(self) -> None:
        """The upstream has left: idle connections end now, busy ones with their exchange."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
        for connection in list(self.idle):
            connection.close()

    def reserve(self) -> None:
        """Count a connection before `connect` makes it."""
        self.open += 1

    async def connect(self, timeout: float) -> UpstreamConnection:
        """A new connection, which was reserved, to the first address that accepts one within `timeout` seconds.
        Raises ConnectFailed; at once while the upstream is out of reach, so that its slot goes to others."""
        connected = False
        try:
            if self._is_out_of_reach:
                message = f"{self.upstream.member}: out of reach; slb looks for it every few seconds"
                raise ConnectFailed(message, untried=True)
            self._longest = max(self._longest, timeout)
            connection = await self._connect(timeout)
            connected = connection.counted = True
            return connection
        except ConnectFailed as error:
            if error.silent:
                self.was_silent()
            raise
        finally:
            self.open -= not connected

    async def _connect(self, timeout: float) -> UpstreamConnection:
        spec = self.upstream.spec
        made: list[UpstreamConnection] = []
        tried: list[str] = []
        try:
            async with asyncio.timeout(timeout) as limit:
                tried = list(await self._addresses(spec.host, spec.port))
                return await self._connect_to(tried, made, limit)
        except TimeoutError:
            for attempt in made:
                attempt.abort_if_made()
            last = f" ({tried[len(made) - 1]} port {spec.port})" if made and not is_address(spec.host) else ""
            message = f"{spec.member}{last}: no connection within {timeout:g} s"
            is_silent = bool(made) and not any(each.is_made for each in made)  # one that is may owe a TLS handshake
            raise ConnectFailed(message, silent=is_silent) from None
        except ConnectFailed:
            raise
        except Exception as error:  # the exchange would wait for ever
            _log.exception("connect_broke", upstream=spec.member)
            raise ConnectFailed(f"{spec.member}: a connection could not be made", INTERNAL) from error

    def was_silent(self) -> None:
        """The upstream has confirmed nothing: look whether the network carries to it. That needs no slot."""
        if self._probing is None and not self._closed:
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        """Connect until something answers. After the first failure the upstream is out of reach."""
        member, pause = self.upstream.member, _PROBED_AGAIN
        try:
            while not self._closed:
                try:
                    await self._try()
                    return
                except ConnectFailed as error:
                    if error.refused:
                        return
                    if not self._is_out_of_reach and not (error.silent and self._is_quiet):
                        return
                if not self._is_out_of_reach:
                    self._is_out_of_reach = True
                    _log.warning("upstream_out_of_reach", upstream=member)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PROBED_AT_LEAST)
        finally:
            self._probing = None
            if self._is_out_of_reach and not self._closed:
                self._is_out_of_reach = False
                _log.info("upstream_in_reach", upstream=member)

    def look(self, connected: Callable[[LiveUpstream], None]) -> None:
        """Make one attempt to connect, if none is made at present. The next one that succeeds calls `connected`."""
        self._connected = connected
        if self._probing is None and not self._closed:
            self._probing = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            with suppress(ConnectFailed):  # nothing new: that is why it is out
                await self._try()
        finally:
            self._probing = None

    async def _try(self) -> None:
        """Make a connection for the next request. While it is made it does not count as one: requests have all that
        there may be. Raises ConnectFailed."""
        connection = await self._connect(self._longest)
        connected, self._connected = self._connected, None
        if connected is not None:
            connected(self.upstream)
        if self.is_full:
            connection.close()
        else:
            self.reserve()
            connection.counted = True
            self.put(connection, self.wheel.now())

    @property
    def _is_quiet(self) -> bool:
        """Whether no byte has come of late: else it is there, and its line of new connections is full."""
        return self.wheel.now() - self.upstream.alive_at > UNCONFIRMED

    def ended(self, connection: UpstreamConnection) -> None:
        """The connection has ended, idle or lent."""
        self.discard(connection)
        if connection.counted:
            connection.counted = False
            self.open -= 1

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host` that may be connected to. One look-up at a time: each takes a thread."""
        if not self._is_name:
            return await self._look_up(host, port)
        return await self._lookups.of((host, port), lambda: self._look_up(host, port))

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        """The address rules are applied each time."""
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

    async def _connect_to(
        self, addresses: Sequence[str], made: list[UpstreamConnection], limit: asyncio.Timeout
    ) -> UpstreamConnection:
        spec = self.upstream.spec
        secure = await self._tls.context() if spec.scheme == "https" else None
        failures: list[str] = []
        refusals = silences = 0
        for address in addresses:
            connection = UpstreamConnection(self)
            made.append(connection)
            try:
                async with _part(limit, len(addresses) - len(failures)):
                    await self._connect_one(connection, address, secure)
            except OSError as error:  # ssl.SSLError is one, and TimeoutError
                if error.errno in _OUR_LIMITS:
                    raise ConnectFailed(f"{spec.member}: {fault(error)}, here at slb", OVERLOADED) from None
                connection.abort_if_made()
                failures.append(f"{self._named(address)}{fault(error)}")
                refusals += isinstance(error, ConnectionRefusedError)
                silences += is_cut(error)
                continue
            if not connection.transport.is_closing():
                return connection
            failures.append(f"{self._named(address)}the connection was closed")
        message, all_of_them = f"{spec.member}: {'; '.join(failures)}", len(addresses)
        raise ConnectFailed(message, refused=refusals == all_of_them, silent=silences == all_of_them)

    def _named(self, address: str) -> str:
        spec = self.upstream.spec
        return "" if is_address(spec.host) else f"{address} port {spec.port}: "

    async def _connect_one(
        self, connection: UpstreamConnection, address: str, secure: ssl.SSLContext | None
    ) -> None:
        loop, spec = asyncio.get_running_loop(), self.upstream.spec
        transport, _ = await loop.create_connection(lambda: connection, address, spec.port)
        if secure is not None:
            secured = await loop.start_tls(
                transport,
                connection,
                secure,
                server_hostname=spec.host,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
            )
            connection.secured(cast("asyncio.Transport", secured))


@asynccontextmanager
async def _part(limit: asyncio.Timeout, addresses: int) -> AsyncIterator[None]:
    """One address's part of the time up to `limit`. Raises TimeoutError; for the last address `limit` does."""
    until = limit.when()
    if addresses == 1 or until is None:
        yield
        return
    seconds = (until - asyncio.get_running_loop().time()) / addresses
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        if error.errno is not None:
            raise
        raise TimeoutError(errno.ETIMEDOUT, f"no connection within {seconds:.2g} s") from None


class Pools:
    """member -> Pool; follows the mirror's swaps."""

    def __init__(self, mirror: Mirror, parts: PoolParts, settings: Settings) -> None:
        self._mirror = mirror
        self._parts = parts
        self._settings = settings
        self._pools: dict[str, Pool] = {}
        mirror.on_swap(self.drop)

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    def of(self, upstream: LiveUpstream) -> Pool:
        """The upstream's pool. An upstream that left and came back has a new one."""
        pool = self._pools.get(upstream.member)
        if pool is None or pool.upstream is not upstream:
            pool = Pool(upstream, self._parts, self._settings)
            if self._mirror.upstream(upstream.member) is upstream:
                self._pools[upstream.member] = pool
            else:
                pool.close()  # its connections end with their exchanges
        return pool

    def look(self, upstream: LiveUpstream, connected: Callable[[LiveUpstream], None]) -> None:
        """As `Pool.look`."""
        self.of(upstream).look(connected)

    def full(self, upstreams: Sequence[LiveUpstream]) -> list[LiveUpstream]:
        """Those that cannot take one more request."""
        pools = (self._pools.get(each.member) for each in upstreams)
        return [pool.upstream for pool in pools if pool is not None and not pool.has_room]

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        for pool in self._pools.values():
            pool.reconfigure(settings)

    def drop(self, members: Sequence[str]) -> None:
        for member in members:
            pool = self._pools.pop(member, None)
            if pool is not None:
                pool.close()

    def close(self) -> None:
        self.drop(list(self._pools))
