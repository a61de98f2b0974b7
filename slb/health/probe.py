"""One active check: a GET on a connection of its own."""

import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from slb import __version__
from slb.addresses import AddressRules, is_address
from slb.lookups import SingleFlight
from slb.model import HealthCheck, Upstream

_HEADERS = {"User-Agent": f"slb/{__version__} (health check)", "Accept": "*/*"}

_Question = tuple[str, int, socket.AddressFamily]

TlsContext = Callable[[], Awaitable[ssl.SSLContext]]


class Prober:
    """Asks upstreams how they are. A new connection each time: a kept one would hide a listener that is gone.
    `tls` gives the context for `https` upstreams; without it they are verified by this machine's authorities. Must
    be made on the running loop, and closed."""

    def __init__(self, rules: AddressRules, tls: TlsContext | None = None) -> None:
        self._rules = rules
        self._tls = tls
        connector = aiohttp.TCPConnector(
            resolver=_RuledResolver(rules), use_dns_cache=False, force_close=True, limit=0
        )
        self._session = aiohttp.ClientSession(
            connector=connector, headers=_HEADERS, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None:
        """Why `upstream` did not pass; None where it answered 2xx or 3xx in time. Redirects are not followed."""
        refusal = self._rules.refusal(upstream.host, upstream.port) if is_address(upstream.host) else None
        if refusal:
            return refusal
        url = URL(f"{upstream.scheme}://{upstream.authority}{check.path}", encoded=True)
        try:
            timeout = aiohttp.ClientTimeout(total=check.timeout)
            context = await self._tls() if self._tls is not None and upstream.scheme == "https" else True
            async with self._session.get(url, timeout=timeout, allow_redirects=False, ssl=context) as reply:
                return None if 200 <= reply.status < 400 else f"status {reply.status}"
        except TimeoutError:
            return f"no answer within {check.timeout:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__

    async def aclose(self) -> None:
        """Close what is open."""
        await self._session.close()


class _RuledResolver(AbstractResolver):
    """The address rules hold for what a name resolves to, each time: a health check is a request like any other.
    Checks of one name wait for one lookup: it takes a thread, of which there are few, and goes on where its check
    has been given up."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._resolver = aiohttp.ThreadedResolver()
        self._lookups: SingleFlight[_Question, list[ResolveResult]] = SingleFlight()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._lookups.of((host, port, family), lambda: self._resolver.resolve(host, port, family))
        refusals = [self._rules.refusal(each["host"], port) for each in found]
        allowed = [each for each, refusal in zip(found, refusals, strict=True) if refusal is None]
        if not allowed:
            raise OSError(errno.EACCES, refusals[0] if refusals else f"{host} has no address")
        return allowed

    async def close(self) -> Any:
        self._lookups.cancel()
        await self._resolver.close()
