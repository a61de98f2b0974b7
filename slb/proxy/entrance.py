"""Accepting, and what comes before HTTP: the PROXY header of a trusted balancer, the TLS handshake.

Accepting has a budget: `_AT_ONCE` connections in one turn of the loop. uvloop's own server takes one in a turn:
during a storm of connects the kernel's queue fills, and a new client waits for all 4,096 in it; where it cannot
accept it drops them without a word. The price, with a request on each: 52 us of CPU a connection instead of 43
while the loop is busy, 97 instead of 70 where each finds it idle.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import structlog

from slb.addresses import Network, in_networks
from slb.listening import has_left, queued, waiting
from slb.observe.metrics import Metrics
from slb.proxy.forwarded_transport import Forwarded, Peer
from slb.proxy.plain_on_tls import refuse_plain, speaks_plainly
from slb.proxy.proxy_protocol import MalformedHeader, missing, parse
from slb.proxy.tls import Certificates
from slb.upstreams.tls import SHUTDOWN_TIMEOUT

HANDSHAKE_TIMEOUT = 10.0
"""Seconds a client has for its part of the TLS handshake."""
_LEAST_TIMEOUT = 0.001
"""Seconds: a timeout of none is refused."""
_AT_ONCE = 16
"""Connections taken before others have their turn: 1 to 1.5 ms of work, beginning and ending each included."""
_PAUSE = 1.0
"""Seconds without accepting after it failed, which is when there are no descriptors left."""
_UNKNOWN = ("unknown", 0)
"""The peer where the balancer does not know it. Taking the balancer's own address for it would extend the trust in
the balancer to any client behind it."""

_log = structlog.get_logger("slb.proxy")


class _Refused(Exception):
    """No valid PROXY header; the message is the metric's label."""


class Entrance:
    """Accepts on listening sockets, and brings connections to HTTP, whose protocol `serve` makes.

    `certificates`: None for no TLS. `networks`: the peers that have to send a PROXY header, all others are refused;
    None for no such header. `patience`: seconds for that header. `limit`: how many may be arriving at the same
    time; `per_peer`: from one address, a balancer's apart; 0 for no limit. `name`: of the listener, for log and
    metric.
    """

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        certificates: Certificates | None,
        networks: tuple[Network, ...] | None,
        patience: float,
        limit: int,
        per_peer: int,
        metrics: Metrics,
        name: str = "data",
    ) -> None:
        self._serve = serve
        self._certificates = certificates
        self._networks = networks
        self._patience = patience
        self._limit, self._per_peer = limit, per_peer
        self._metrics = metrics
        self._name = name
        self._listeners: list[socket.socket] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._arriving_from: Counter[str] = Counter()

    def reconfigure(self, networks: tuple[Network, ...] | None, patience: float, limit: int, per_peer: int) -> None:
        self._networks, self._patience, self._limit, self._per_peer = networks, patience, limit, per_peer

    def __len__(self) -> int:
        """How many are arriving."""
        return len(self._arriving)

    @property
    def listeners(self) -> Sequence[socket.socket]:
        return self._listeners

    def open(self, listener: socket.socket, backlog: int) -> None:
        """Accept on `listener`, which is bound."""
        listener.setblocking(False)
        listener.listen(backlog)
        self._listeners.append(listener)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Accept no more. Connections that are already in the queue may go on."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            for accepted, peer in waiting(listener):
                self._take(accepted, peer)
            listener.close()
        self._listeners.clear()

    def let_go(self, shared: Collection[socket.socket]) -> None:
        """Accept no more on those of the listeners that another process has too: it takes what is in the queue."""
        for listener in [each for each in self._listeners if each in shared]:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            self._listeners.remove(listener)

    async def empty(self, quiet: float) -> None:
        """Wait until no connection is arriving. Once none has got through for `quiet` seconds, end the rest."""
        while self._arriving:
            done, _ = await asyncio.wait(self._arriving, timeout=quiet, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await self.abort()

    async def abort(self) -> None:
        while self._arriving:
            for arrival in self._arriving:
                arrival.cancel()
            await asyncio.wait(self._arriving)

    # -- accepting

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(min(queued(listener), _AT_ONCE)):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listener, error)
                return
            if has_left(accepted):  # a tenth of the work that serving it is
                self._forget(accepted)
            else:
                self._take(accepted, peer)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Mostly no descriptors. One line of the log for each pause."""
        self._metrics.process.accept_failures[self._name] += 1
        _log.error("accept_failed", listener=self._name, error=error.strerror, again_in=_PAUSE)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_PAUSE, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _take(self, accepted: socket.socket, peer: Peer) -> None:
        if self._certificates is None and self._networks is None:  # nothing to wait for; HTTP has limits of its own
            arrival = self._start(self._begin_http(accepted, None))
            arrival.add_done_callback(self._arriving.discard)
            return
        address = str(peer[0])
        if self._is_full(address):
            self._metrics.clients.proxy_protocol_refused["overloaded"] += 1
            accepted.close()
            return
        accepted.setblocking(False)
        arrival = self._start(self._let_in(accepted, peer))
        self._arriving_from[address] += 1
        arrival.add_done_callback(lambda done: self._arrived(done, address))

    def _forget(self, accepted: socket.socket) -> None:
        accepted.close()
        if self._networks is not None:
            self._metrics.clients.proxy_protocol_refused["closed"] += 1
        elif self._certificates is not None:
            self._metrics.tls.handshake_failures["closed"] += 1

    def _start(self, arriving: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        arrival = asyncio.get_running_loop().create_task(arriving)
        self._arriving.add(arrival)
        return arrival

    def _is_full(self, address: str) -> bool:
        if self._limit and len(self._arriving) >= self._limit:
            return True
        return 0 < self._per_peer <= self._arriving_from[address] and self._networks is None

    def _arrived(self, arrival: "asyncio.Task[None]", address: str) -> None:
        self._arriving.discard(arrival)
        self._arriving_from[address] -= 1
        if not self._arriving_from[address]:
            del self._arriving_from[address]

    # -- arriving

    async def _let_in(self, accepted: socket.socket, peer: Peer) -> None:
        try:
            client = await self._client(accepted, peer)
        except (_Refused, OSError) as error:
            reason = str(error) if isinstance(error, _Refused) else "closed"
            self._metrics.clients.proxy_protocol_refused[reason] += 1
            accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        await self._begin_http(accepted, client)

    async def _begin_http(self, accepted: socket.socket, client: Peer | None) -> None:
        loop = asyncio.get_running_loop()
        serve = self._serve if client is None else lambda: Forwarded(self._serve(), client)
        try:
            if self._certificates is None:
                await loop.connect_accepted_socket(serve, accepted)
                return
            until = loop.time() + HANDSHAKE_TIMEOUT
            if await speaks_plainly(accepted, until):
                self._metrics.tls.handshake_failures["http_request"] += 1
                await refuse_plain(accepted)
                return
            await loop.connect_accepted_socket(
                serve,
                accepted,
                ssl=self._certificates.context,
                ssl_handshake_timeout=max(until - loop.time(), _LEAST_TIMEOUT),
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
            )
        except OSError as error:
            accepted.close()
            if self._certificates is not None:
                self._metrics.tls.handshake_failures[_label(error)] += 1

    async def _client(self, accepted: socket.socket, peer: Peer) -> Peer | None:
        """The client that the PROXY header names; None where the peer is the client. Raises _Refused, OSError."""
        if self._networks is None:
            return None
        if not in_networks(str(peer[0]), self._networks):
            raise _Refused("untrusted")
        try:
            async with asyncio.timeout(self._patience):
                header = parse(await _read_header(accepted))
        except TimeoutError:
            raise _Refused("timeout") from None
        except MalformedHeader:
            raise _Refused("malformed") from None
        return None if header.local else header.client or _UNKNOWN


async def _read_header(accepted: socket.socket) -> bytes:
    """A PROXY header, and no byte of what follows. Raises MalformedHeader, OSError."""
    header = b""
    while still := missing(header):
        try:
            data = accepted.recv(still)
        except BlockingIOError:
            data = await asyncio.get_running_loop().sock_recv(accepted, still)
        if not data:
            raise ConnectionResetError
        header += data
    return header


def _label(error: OSError) -> str:
    """OpenSSL's own name for it."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "other").lower()
    return "timeout" if isinstance(error, ConnectionAbortedError | TimeoutError) else "closed"
