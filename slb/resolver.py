"""For aiohttp's connections: the address rules apply to what a name resolves to, and to every socket, each time."""

import errno
import socket
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp.abc import AbstractResolver, ResolveResult

from slb.lookups import SingleFlight

_Question = tuple[str, int, socket.AddressFamily]
_AddressInfo = tuple[Any, ...]


class Rules(Protocol):
    """Why nothing may go to `ip`:`port`, one sentence; None where it may."""

    def refusal(self, ip: str, port: int) -> str | None: ...


class RuledResolver(AbstractResolver):
    """Resolves by `inner`, which it closes. `exempt`: a host to whose addresses no rule applies. One name is looked
    up once at a time: a lookup may take a thread, of which there are few, and goes on where nobody waits for it."""

    def __init__(self, rules: Rules, inner: AbstractResolver, exempt: str = "") -> None:
        self._rules = rules
        self._inner = inner
        self._exempt = exempt
        self._lookups: SingleFlight[_Question, list[ResolveResult]] = SingleFlight()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError where no address of `host` may be an upstream's."""
        found = await self._lookups.of((host, port, family), lambda: self._inner.resolve(host, port, family))
        if host == self._exempt:
            return found
        refusals = [self._rules.refusal(each["host"], port) for each in found]
        allowed = [each for each, refusal in zip(found, refusals, strict=True) if refusal is None]
        if not allowed:
            raise OSError(errno.EACCES, refusals[0] if refusals else f"{host} has no address")
        return allowed

    async def close(self) -> None:
        self._lookups.cancel()
        await self._inner.close()


def ruled_sockets(rules: Rules) -> Callable[[_AddressInfo], socket.socket]:
    """A socket factory for aiohttp's connector, which asks no resolver for what it takes for an address: 127.0.0.1,
    but also 2130706433 and 127.1, which the system reads as the same. What is no address in its usual form is
    refused. The factory raises OSError."""

    def made(info: _AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if refusal := rules.refusal(address[0], address[1]):
            raise OSError(errno.EACCES, refusal)
        return socket.socket(family, kind, protocol)

    return made
