"""The data listener: takes connections, and lets them go in peace."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from random import Random

from slb.addresses import AddressRules
from slb.config import Settings
from slb.observe.log import AccessLog
from slb.observe.metrics import Metrics
from slb.proxy.downstream import Downstream
from slb.proxy.plane import Handover, Plane
from slb.proxy.upstream import Pools
from slb.routing.mirror import Mirror

_BACKLOG = 4096


class ProxyServer:
    """Serves the data listener's sockets from the mirror."""

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
        self._plane.pools = Pools(self._plane)
        self._servers: list[asyncio.Server] = []
        metrics.inflight = lambda: [(live.member, live.inflight) for live in mirror.upstreams.values()]
        metrics.connections = lambda: len(self._plane.connections)
        mirror.on_swap(metrics.forget_upstreams)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on `sockets` (bound, not yet listening)."""
        loop = asyncio.get_running_loop()
        self._plane.wheel.start(loop)
        for bound in sockets:
            server = await loop.create_server(lambda: Downstream(self._plane), sock=bound, backlog=_BACKLOG)
            self._servers.append(server)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket, as bound."""
        return [each.getsockname()[:2] for server in self._servers for each in server.sockets]

    def begin_drain(self) -> None:
        """No new connections; idle ones end; replies from now on say `Connection: close`."""
        self._plane.draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._plane.connections):
            connection.close_when_idle()

    async def drain(self, timeout: float) -> int:
        """Begin to drain and wait for requests in flight, at most `timeout` seconds; how many were cut off."""
        self.begin_drain()
        if self._plane.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._plane.drained.wait(), timeout)
        left = list(self._plane.connections)
        for connection in left:
            connection.transport.abort()
        self._plane.pools.close()
        self._plane.wheel.stop()
        return sum(connection.exchange is not None for connection in left)
