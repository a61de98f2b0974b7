"""Names of upstreams are held to the address rules when they resolve; the fallback's host is the caller's own."""

import socket

from aiohttp import DefaultResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from slb.addresses import AddressRules


class RuledResolver(AbstractResolver):
    """`exempt`: a host to whose addresses no rule applies."""

    def __init__(self, rules: AddressRules, exempt: str) -> None:
        self._rules = rules
        self._exempt = exempt
        self._inner = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError where no address of `host` may be an upstream's."""
        found = await self._inner.resolve(host, port, family)
        if host == self._exempt:
            return found
        refusals = [self._rules.refusal(each["host"], each["port"]) for each in found]
        allowed = [each for each, refusal in zip(found, refusals, strict=True) if refusal is None]
        if not allowed:
            raise OSError(None, next((each for each in refusals if each), f"{host} has no address"))
        return allowed

    async def close(self) -> None:
        await self._inner.close()
