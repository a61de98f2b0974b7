"""What is written during one turn of the event loop, written at the turn's end: peers that are woken together cost
a quarter less at both ends. Code that closes a connection, or gives it away, calls `flush` before."""

import asyncio
from collections import deque
from collections.abc import Callable

from slb.upstreams.deadlines import report

_LARGE = 8 * 1024
"""Bytes that are written at once: waiting gains nothing, and uvloop may read 8 MB from a fast peer in one turn, all
of which would wait here."""


class Outbox:
    """`flushes` counts: what was posted at an earlier count has been written."""

    __slots__ = ("_call_soon", "_posted", "flushes")

    def __init__(self) -> None:
        self._posted: deque[tuple[asyncio.Transport, bytes]] = deque()
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self.flushes = 0

    def post(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write `data` at the end of this turn, behind what was posted before; much of it at once."""
        posted = self._posted
        if not posted:
            self._wake()
        posted.append((transport, data))
        if len(data) > _LARGE:
            self.flush()

    def _wake(self) -> None:
        if self._call_soon is None:
            self._call_soon = asyncio.get_running_loop().call_soon
        self._call_soon(self.flush)

    def flush(self) -> None:
        """Write what is posted. Connections that are closing are skipped. A write may call back into `flush`, which
        goes on where this one is."""
        posted = self._posted
        self.flushes += 1
        while posted:
            transport, data = posted.popleft()
            if not transport.is_closing():
                try:
                    transport.write(data)
                except Exception as error:  # noqa: BLE001 -- the others' bytes stand behind it
                    report(error, "a connection could not be written to, and is cut: its bytes have a gap")
                    transport.abort()
