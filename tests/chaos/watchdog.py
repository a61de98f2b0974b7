"""Whether Redis answers a plain process, which does nothing else: `python -m tests.chaos.watchdog SOCKET`.

It writes one key again and again, and prints a line for each time that Redis was silent: since when and until when,
be it that it took no writes, or that the machine did not let one of the two run. What excuses slb is not its own
word.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.chaos.history import Span

NOTED_SECONDS = 0.5
PATIENCE_SECONDS = 1.5
"""`ledger_patience`: while Redis is silent for less, caps hold."""

_PAUSE = 0.02
_GIVE_UP = 0.25
"""Seconds without an answer after which another connection is tried."""


_WRITE = b"SET watchdog:{/p} 1\r\n"
"""In a cluster the counts are at the same node."""


class Watchdog:
    """`silences`: those of NOTED_SECONDS and more that have ended."""

    def __init__(self) -> None:
        self.silences: list[Span] = []
        self._taken = 0

    @asynccontextmanager
    async def watching(self, address: Path) -> AsyncIterator["Watchdog"]:
        """While this lasts, the process runs."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.watchdog", address), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            yield self
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait([reading])
            await process.wait()

    async def _read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            start, end = map(float, line.split())
            self.silences.append(Span(start, end))

    def beyond_patience(self) -> list[Span]:
        """Those that are new since this was last asked."""
        new, self._taken = self.silences[self._taken :], len(self.silences)
        return [each for each in new if each.end - each.start >= PATIENCE_SECONDS]

    def longest(self, since: float) -> float:
        """Seconds, of those that ended after that; 0 where there was none."""
        return max((each.end - each.start for each in self.silences if each.end >= since), default=0.0)


def watch(address: str) -> None:
    """Until the process that has started this one is gone."""
    answered, parent = time.time(), os.getppid()
    while os.getppid() == parent:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_GIVE_UP)
            connection.connect(address)
            while os.getppid() == parent:
                connection.sendall(_WRITE)
                if connection.recv(64) != b"+OK\r\n":
                    break
                now = time.time()
                if now - answered - _PAUSE >= NOTED_SECONDS:
                    print(answered, now, flush=True)
                answered = now
                time.sleep(_PAUSE)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        watch(sys.argv[1])
