"""A connection that is handed over to the applications behind the data listener. It keeps its place among the
client connections until its end: it holds a descriptor, and a drain waits for its answer."""

import asyncio
from collections.abc import Callable

Handover = Callable[[], asyncio.Protocol]
"""Makes the protocol of the applications for one connection."""


class HandedOver(asyncio.Protocol):
    """Passes all that happens on to `application`, and calls `ended` when the connection is gone."""

    def __init__(self, application: asyncio.Protocol, ended: Callable[[], None]) -> None:
        self._application = application
        self._ended = ended
        self.data_received = application.data_received  # type: ignore[method-assign]
        self.eof_received = application.eof_received  # type: ignore[method-assign]
        self.pause_writing = application.pause_writing  # type: ignore[method-assign]
        self.resume_writing = application.resume_writing  # type: ignore[method-assign]

    def begin(self, transport: asyncio.Transport, data: bytes) -> None:
        """Give the connection to the application, with the bytes already read from it."""
        transport.set_protocol(self)
        self._application.connection_made(transport)
        self._application.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended()
        self._application.connection_lost(error)
