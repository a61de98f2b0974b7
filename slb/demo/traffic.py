"""Steady requests to one DNS name with two addresses, and exact counts of the answers by upstream."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

NAME = "slb.test"  # reserved for tests (RFC 6761), so no site has it

_AT_ONCE = 64
_TIMEOUT = ClientTimeout(total=10)


class RotatingResolver(AbstractResolver):
    """A DNS of one name: all addresses each time, each time with another one first (RFC 1794)."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._addresses = list(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """`addresses` in turn; their own port counts, for systems where both have the same address."""
        if host != NAME:
            raise OSError(f"{host} is not {NAME}")
        found = [
            ResolveResult(
                hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=socket.AI_NUMERICHOST
            )
            for address, port in self._addresses
        ]
        self._addresses.append(self._addresses.pop(0))
        return found

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Account:
    """What one phase counted: answers by upstream, and what went wrong."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.answers.total() + len(self.failures)


class Traffic:
    """Sends `rate` requests a second, each on a connection of its own, so that each asks the DNS again."""

    def __init__(self, addresses: Sequence[tuple[str, int]], path: str, rate: float) -> None:
        connector = TCPConnector(resolver=RotatingResolver(addresses), use_dns_cache=False, force_close=True)
        self._session = ClientSession(connector=connector, timeout=_TIMEOUT)
        self._url = f"http://{NAME}:{addresses[0][1]}{path}"
        self._pause = 1 / rate
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        await self._session.close()

    async def send(self, account: Account, count: float = inf, ended: asyncio.Event | None = None) -> None:
        """`count` requests, or as many as until `ended` is set; all are answered or failed on return. One per
        pause, caught up with after a delay, as clients do not wait for each other."""
        loop, turn = asyncio.get_running_loop(), 0
        begun = loop.time()
        async with asyncio.TaskGroup() as group:
            while turn < count and not (ended and ended.is_set()):
                await asyncio.sleep(max(0.0, begun + turn * self._pause - loop.time()))
                await self._places.acquire()
                group.create_task(self._one(account))
                turn += 1

    @asynccontextmanager
    async def flowing(self, account: Account) -> AsyncIterator[None]:
        ended = asyncio.Event()
        flow = asyncio.create_task(self.send(account, ended=ended))
        try:
            yield
        finally:
            ended.set()
            await flow

    async def _one(self, account: Account) -> None:
        try:
            async with self._session.get(self._url) as reply:
                await reply.read()
                if reply.status == 200:
                    account.answers[reply.headers["X-Upstream"]] += 1
                else:
                    account.failures.append(f"{reply.status} {(await reply.text())[:200]}")
        except (ClientError, OSError, TimeoutError) as error:
            account.failures.append(str(error) or type(error).__name__)
        finally:
            self._places.release()
