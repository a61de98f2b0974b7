"""Whether instances take traffic, asked of each once a second: an address leaves the answers long before Redis
knows that its instance is gone, and while Redis is away too.

The cost grows with the instances: some 300 us of CPU a second for each, here and there, and for each responder."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from random import Random

from slb.dns.fleet import Member, Place

INTERVAL = 1.0
TIMEOUT = 0.75
"""Seconds between two checks of an instance, and for one. An instance that is gone with its machine fails after two
of them, 2.5 s; one whose process is gone refuses at once."""
_FALL = 2
"""So many times in a row nothing has to be heard; a refusal or a 503 is an answer, and counts at once."""

_REQUEST = b"GET /_slb/readyz HTTP/1.1\r\nHost: slb\r\nUser-Agent: slb-dns\r\nConnection: close\r\n\r\n"
_READY = b"HTTP/1.1 200 "

PASSED, UNREADY, REFUSED, SILENT = "passed", "unready", "refused", "silent"


class Checks:
    """`on_change` is called when a place passes, or no longer does; `count` gets the result of each check."""

    def __init__(self, on_change: Callable[[], None], count: Callable[[str], None], rng: Random) -> None:
        self.results: dict[Place, str] = {}
        """The last result of each place; none before its first check has ended."""
        self._on_change = on_change
        self._count = count
        self._rng = rng
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._serves: dict[Place, str] = {}

    def passes(self, place: Place) -> bool:
        return self.results.get(place) == PASSED

    def follow(self, members: Mapping[Place, Member]) -> None:
        """Check these from now on, and no others. What drains is not asked: it has told so, and would log that it
        refuses."""
        members = {place: member for place, member in members.items() if member.is_ready}
        for gone in self._tasks.keys() - members.keys():
            self._tasks.pop(gone).cancel()
            self.results.pop(gone, None)
        self._serves = {place: member.serves for place, member in members.items()}
        for place in members.keys() - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._repeat(place), name=f"check {place}")

    async def stop(self) -> None:
        running, self._tasks = list(self._tasks.values()), {}
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def pending(self) -> bool:
        """Whether the first check of some place is under way."""
        return not self._tasks.keys() <= self.results.keys()

    async def first(self, seconds: float) -> None:
        """Wait until each place has been checked once, but at most so long. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while self.pending():
                await asyncio.sleep(0.01)

    async def _repeat(self, place: Place) -> None:
        silent = 0
        while True:
            result = await check(place, self._serves[place])
            self._count(result)
            silent = silent + 1 if result == SILENT else 0
            if result != SILENT or silent >= _FALL or place not in self.results:
                self._note(place, result)
            if 0 < silent < _FALL:
                continue
            await asyncio.sleep(INTERVAL * self._rng.uniform(0.9, 1.0))  # so that checks do not come all at once

    def _note(self, place: Place, result: str) -> None:
        before, self.results[place] = self.results.get(place), result
        if before != result:
            self._on_change()


async def check(place: Place, serves: str) -> str:
    """One check: `passed`, `unready` (another answer than 200), `refused`, or `silent`."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _checked(place, serves)
    except ConnectionRefusedError:
        return REFUSED
    except (OSError, TimeoutError):
        return SILENT


async def _checked(place: Place, serves: str) -> str:
    loop = asyncio.get_running_loop()
    context = _context() if serves == "https" else None
    transport, client = await loop.create_connection(
        lambda: _Client(loop), str(place.address), place.port, ssl=context
    )
    try:
        if serves == "tcp":
            return PASSED
        transport.write(_REQUEST)
        return await client.result
    finally:
        transport.abort()


class _Client(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.result: asyncio.Future[str] = loop.create_future()
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data[: len(_READY)]
        if len(self._seen) >= len(_READY):
            self._end(PASSED if self._seen.startswith(_READY) else UNREADY)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(SILENT)

    def _end(self, result: str) -> None:
        if not self.result.done():
            self.result.set_result(result)


def _context() -> ssl.SSLContext:
    """The certificate proves nothing that is asked here."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
