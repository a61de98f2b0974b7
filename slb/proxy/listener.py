"""The data listener: takes connections, and lets them go in peace."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from slb.addresses import AddressRules
from slb.config import Settings
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.proxy.downstream import Downstream
from slb.proxy.entrance import Entrance
from slb.proxy.plane import Handover, Plane
from slb.proxy.tls import LOOK_AGAIN, UpstreamTls, certificates, follow
from slb.proxy.upstream import Pools
from slb.routing.mirror import Mirror

_BACKLOG = 4096


class ProxyServer:
    """Serves the data listener's sockets from the mirror. Raises ConfigError for certificates it cannot use."""

    def __init__(
        self,
        settings: Settings,
        mirror: Mirror,
        metrics: Metrics,
        access_log: AccessLog,
        address_rules: AddressRules,
        handover: Handover,
        rng: Random,
    ) -> None:
        self._plane = Plane(settings, mirror, metrics, access_log, address_rules, handover, rng)
        self._certificates = certificates(settings, metrics)
        self._upstream_tls = UpstreamTls(settings, metrics)
        self._plane.pools = Pools(self._plane, self._upstream_tls)
        self._servers: list[asyncio.Server] = []
        self._entrance = Entrance(
            lambda: Downstream(self._plane),
            self._certificates,
            settings.trusted_proxies if settings.proxy_protocol else None,
            settings.head_timeout,
            settings.max_connections,
            metrics,
        )
        metrics.inflight = lambda: [(live.member, live.inflight) for live in mirror.upstreams.values()]
        metrics.connections = lambda: len(self._plane.connections)
        mirror.on_swap(metrics.forget_upstreams)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on `sockets` (bound, not yet listening)."""
        loop = asyncio.get_running_loop()
        self._plane.wheel.start(loop)
        direct = self._certificates is None and not self._plane.settings.proxy_protocol
        for bound in sockets:
            if not direct:
                self._entrance.open(bound, _BACKLOG)
                continue
            server = await loop.create_server(lambda: Downstream(self._plane), sock=bound, backlog=_BACKLOG)
            self._servers.append(server)

    async def follow_files(self, period: float = LOOK_AGAIN) -> None:
        """Take new certificates when their files change, until cancelled."""
        await follow([each for each in (self._certificates, self._upstream_tls) if each is not None], period)

    @property
    def upstream_tls(self) -> Callable[[], Awaitable[ssl.SSLContext]]:
        """Gives the context `https` upstreams are met with, for whoever else meets them."""
        return self._upstream_tls.context

    @property
    def arriving(self) -> int:
        """Connections that are not at HTTP yet."""
        return len(self._entrance)

    def begin_drain(self) -> None:
        """No new connections; idle ones end; replies from now on say `Connection: close`."""
        self._plane.draining = True
        for server in self._servers:
            server.close()
        self._entrance.close()
        for connection in list(self._plane.connections):
            connection.close_when_idle()

    async def drain(self, timeout: float) -> int:
        """Begin to drain and wait for requests in flight, at most `timeout` seconds; how many were cut off."""
        self.begin_drain()
        try:
            async with asyncio.timeout(timeout):
                await self._emptied()
        except TimeoutError:
            await self._entrance.abort()
        left = list(self._plane.connections)
        for connection in left:
            connection.transport.abort()
        self._plane.pools.close()
        self._plane.wheel.stop()
        return sum(connection.exchange is not None for connection in left)

    async def _emptied(self) -> None:
        """Wait until nobody is left, those included who were shaking hands when the doors closed."""
        await self._entrance.empty()
        while self._plane.connections:
            self._plane.drained.clear()
            await self._plane.drained.wait()
