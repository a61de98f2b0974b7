"""An upstream with a cache, in a process of its own:
`python -m bench.figures.caches REDIS_URL FOLDER PORT CAPACITY` (the first two are not used)."""

import asyncio
import sys
from collections.abc import Callable

import uvloop

from bench.lab.cache import LruCache
from bench.request_protocol import RequestProtocol

HIT_SECONDS = 0.001
MISS_SECONDS = 0.1
"""As long as a database takes."""

BACKLOG = 2048
"""Connections that wait to be accepted while it stands still; what most servers ask for."""

HIT = b"X-Cache: hit"
MISS = b"X-Cache: miss"
UPSTREAM = b"X-Upstream: "


class CachingUpstream:
    """Remembers the `capacity` paths that were asked for last. As many requests at once as there are."""

    def __init__(self, name: str, capacity: int, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._cache = LruCache(capacity)
        self._later = later
        self._hit, self._miss = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%b\r\n%b%b\r\n\r\nok" % (found, UPSTREAM, name.encode())
            for found in (HIT, MISS)
        )

    def take(self, path: bytes, answer: Callable[[bytes], None]) -> None:
        """Answer when the cache, or what stands behind it, has it."""
        if self._cache.get(path):
            self._later(HIT_SECONDS, lambda: answer(self._hit))
            return

        def read() -> None:
            self._cache.put(path)
            answer(self._miss)

        self._later(MISS_SECONDS, read)


class Served(RequestProtocol):
    """Answers when the upstream says so."""

    def __init__(self, upstream: CachingUpstream) -> None:
        super().__init__()
        self._upstream = upstream

    def on_message_complete(self) -> None:
        self._upstream.take(self.path, self._answer)

    def _answer(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(reply)


async def serve(port: int, capacity: int) -> None:
    """Listen on the loopback until the process is told to stop."""
    loop = asyncio.get_running_loop()
    upstream = CachingUpstream(str(port), capacity, loop.call_later)
    await loop.create_server(lambda: Served(upstream), "127.0.0.1", port, backlog=BACKLOG)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[3]), int(sys.argv[4])))
