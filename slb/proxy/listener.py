"""The data listener: takes connections, and closes them when it drains."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from slb.addresses import AddressRules
from slb.admission.gates import Gates
from slb.admission.snapshots import Snapshots
from slb.config import Settings
from slb.listening import BACKLOG, hold_newcomers
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.proxy.clients import Clients
from slb.proxy.context import ProxyContext
from slb.proxy.downstream import Downstream
from slb.proxy.entrance import Entrance
from slb.proxy.exchange import Exchange
from slb.proxy.handed_over import Handover
from slb.proxy.identity import Identity
from slb.proxy.retry import Retries
from slb.proxy.tls import LOOK_AGAIN, certificates, follow
from slb.routing.mirror import Mirror
from slb.upstreams.deadlines import Wheel
from slb.upstreams.head_cache import HeadCache
from slb.upstreams.outbox import Outbox
from slb.upstreams.pool import PoolParts, Pools
from slb.upstreams.replies import parse_reply
from slb.upstreams.tls import UpstreamTls


@dataclass(frozen=True, slots=True)
class DrainTiming:
    """Seconds. `handshakes`: between the last accepted SYN and the end of listening, so that a handshake under way
    ends: a round trip. `quiet`: a connection is closed once it was idle at two looks this far apart, for a request
    that crosses our FIN is lost. `arrivals`: connections at the PROXY header or the TLS handshake are cut once none
    of them has got to HTTP for so long."""

    handshakes: float = 0.1
    quiet: float = 1.0
    arrivals: float = 1.0


class ProxyServer:
    """Serves the data listener's sockets from the mirror. `context`: what exchanges share; `clients`: what client
    connections share. Raises ConfigError for certificates that cannot be used."""

    def __init__(
        self,
        settings: Settings,
        mirror: Mirror,
        metrics: Metrics,
        access_log: AccessLog,
        address_rules: AddressRules,
        handover: Handover,
        gates: Gates,
        rng: Random,
        drain_timing: DrainTiming | None = None,
    ) -> None:
        self._drain_timing = drain_timing or DrainTiming()
        self._certificates = certificates(settings, metrics)
        self._upstream_tls = UpstreamTls(settings, metrics)
        clock, outbox = time.monotonic, Outbox()
        wheel = Wheel(clock)
        parts = PoolParts(wheel, outbox, HeadCache(parse_reply), address_rules, self._upstream_tls)
        self.context = ProxyContext(
            metrics=metrics,
            access_log=access_log,
            gates=gates,
            pools=Pools(mirror, parts, settings),
            retries=Retries(metrics.traffic.finished, clock, rng),
            identity=Identity(rng),
            wheel=wheel,
            outbox=outbox,
            clock=clock,
            rng=rng,
            tells_all=settings.client_detail == "full",
            make_exchange=Exchange,
            snapshots=Snapshots(gates, metrics),
        )
        self._shared: Collection[socket.socket] = ()
        self.clients: Clients[Downstream] = Clients(settings, self.context, mirror, handover)
        self._entrance = Entrance(
            lambda: Downstream(self.clients),
            self._certificates,
            settings.trusted_proxies if settings.proxy_protocol else None,
            settings.head_timeout,
            settings.max_connections,
            settings.max_connections_per_peer,
            metrics,
        )
        metrics.inflight = lambda: [(live.member, live.inflight) for live in mirror.upstreams.values()]
        metrics.clients.connections = lambda: len(self.clients.connections)
        mirror.on_swap(metrics.health.forget_upstreams)
        mirror.on_swap(lambda _: metrics.follow_routes(mirror.table.routes))

    async def start(self, sockets: Sequence[socket.socket], shared: Collection[socket.socket] = ()) -> None:
        """Accept on `sockets`, which are bound; `shared`, which may change: those that another process has too."""
        self._shared = shared
        self.context.wheel.start(asyncio.get_running_loop())
        for bound in sockets:
            self._entrance.open(bound, BACKLOG)

    async def follow_files(self, period: float = LOOK_AGAIN) -> None:
        """Reload certificates when their files change, until cancelled."""
        await follow([each for each in (self._certificates, self._upstream_tls) if each is not None], period)

    @property
    def upstream_tls(self) -> Callable[[], Awaitable[ssl.SSLContext]]:
        """Makes the TLS context for `https` upstreams."""
        return self._upstream_tls.context

    @property
    def pools(self) -> Pools:
        """The connections to upstreams; from `start` until `drain` has ended."""
        return self.context.pools

    @property
    def arriving(self) -> int:
        return len(self._entrance)

    @property
    def in_flight(self) -> int:
        """Requests that have begun and not ended."""
        return sum(connection.exchange is not None for connection in self.clients.connections)

    def reconfigure(self, settings: Settings) -> None:
        """Apply `settings` to connections from now on, but for TLS and whether there are PROXY headers."""
        self.context.reconfigure(settings)
        self.clients.reconfigure(settings)
        networks = settings.trusted_proxies if settings.proxy_protocol else None
        self._entrance.reconfigure(
            networks, settings.head_timeout, settings.max_connections, settings.max_connections_per_peer
        )

    def begin_drain(self) -> None:
        """Close each connection with its next reply. New connections are still served."""
        self.context.draining = True

    def let_go(self) -> None:
        """Accept no more where another process does."""
        self._entrance.let_go(self._shared)

    async def drain(self, timeout: float) -> int:
        """Take no new connection, and finish what is under way, for at most `timeout` seconds. Returns how many
        requests were cut off."""
        self.begin_drain()
        self.let_go()
        try:
            async with asyncio.timeout(timeout):
                await self._hold_newcomers()
                self._entrance.close()
                await self._emptied()
        except TimeoutError:
            self._entrance.close()
            await self._entrance.abort()
        cut = self.in_flight
        for connection in list(self.clients.connections):
            connection.transport.abort()
        self.context.pools.close()
        self.context.wheel.stop()
        return cut

    async def _hold_newcomers(self) -> None:
        held = [hold_newcomers(bound) for bound in self._entrance.listeners]
        if any(held):
            await asyncio.sleep(self._drain_timing.handshakes)

    async def _emptied(self) -> None:
        """Wait until there is no connection left, those included that were arriving when listening ended."""
        closing = asyncio.create_task(self._close_the_quiet())
        try:
            await self._entrance.empty(self._drain_timing.arrivals)
            await self.clients.all_gone()
        finally:
            closing.cancel()

    async def _close_the_quiet(self) -> None:
        idle: set[Downstream] = set()
        while True:
            before, idle = idle, {each for each in self.clients.connections if each.is_idle}
            for connection in before & idle:
                connection.close_when_idle()
            await asyncio.sleep(self._drain_timing.quiet)
