"""Names in the URLs of callbacks are looked up beside everything else that this process looks up.

They are a stranger's, and so may be the servers that answer for them: one that never answers holds a thread for as
long as the system waits for it. The event loop has few threads, for names of upstreams and for the disk too.
"""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from aiohttp.abc import AbstractResolver, ResolveResult


class AsideResolver(AbstractResolver):
    """Has so many `threads` of its own. Must be closed; a lookup that is under way then goes on for nobody."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, "callback-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError."""
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=numeric
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
