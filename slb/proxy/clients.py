"""What all client connections share."""

import asyncio
from collections.abc import Mapping
from typing import Generic

from slb.config import Settings
from slb.places import Connection, Places
from slb.proxy.context import ProxyContext
from slb.proxy.disconnect_watcher import DisconnectWatcher
from slb.proxy.handed_over import Handover
from slb.proxy.reader import RequestReader
from slb.proxy.target import RequestLines
from slb.routing.mirror import Mirror


class Clients(Generic[Connection]):
    """Made once per instance. `readers`: for peers that are not trusted, and for trusted ones. `reserved`: path as
    written -> methods that the applications answer, not an upstream."""

    def __init__(self, settings: Settings, context: ProxyContext, mirror: Mirror, handover: Handover) -> None:
        self.context = context
        self.mirror = mirror
        self.handover = handover
        self.disconnects = DisconnectWatcher(context.wheel)
        self.places: Places[Connection] = Places()
        self._lines = RequestLines(mirror)
        self._all_gone = asyncio.Event()
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply `settings` to connections from now on."""
        self.settings = settings
        most = settings.max_connections
        self.places.set_limits(most, settings.max_connections_per_peer, most)
        self.keepalive_timeout = settings.keepalive_timeout
        self.max_requests = settings.max_requests_per_connection
        via = self.context.identity.via
        self.readers = [RequestReader(settings, self._lines, via, trusted) for trusted in (False, True)]
        self.reserved = _reserved(settings.data_register)

    @property
    def connections(self) -> Mapping[Connection, str]:
        """Connection -> the peer's address."""
        return self.places.taken

    def connection_ended(self, connection: Connection) -> None:
        if self.places.leave(connection) and not self.places.taken:
            self._all_gone.set()

    async def all_gone(self) -> None:
        """Wait until there is no connection."""
        while self.places.taken:
            self._all_gone.clear()
            await self._all_gone.wait()


def _reserved(register: bool) -> dict[bytes, frozenset[bytes]]:
    """Other spellings of these paths are not reserved: the applications would not know them."""
    probes = frozenset({b"GET", b"HEAD"})
    paths = {b"/_slb/healthz": probes, b"/_slb/readyz": probes}
    if register:
        paths[b"/register"] = frozenset({b"POST", b"DELETE"})
    return paths
