"""One active check: a GET on a connection of its own."""

import ssl
from collections.abc import Awaitable, Callable

import aiohttp
from yarl import URL

from slb import __version__
from slb.addresses import AddressRules
from slb.model import HealthCheck, Upstream
from slb.resolver import RuledResolver

_HEADERS = {"User-Agent": f"slb/{__version__} (health check)", "Accept": "*/*"}

TlsContext = Callable[[], Awaitable[ssl.SSLContext]]


class Prober:
    """Makes a new connection each time: a kept one would hide a listener that is gone. `tls`: makes the context for
    `https`; None for this machine's authorities. Make it on the running loop, and close it."""

    def __init__(self, rules: AddressRules, tls: TlsContext | None = None) -> None:
        self._rules = rules
        self._tls = tls
        resolver = RuledResolver(rules, aiohttp.ThreadedResolver())
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=_HEADERS, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def fault(self, upstream: Upstream, check: HealthCheck) -> str | None:
        """Why `upstream` did not pass; None where it answered 2xx or 3xx in time. Redirects are not followed."""
        if refusal := self._rules.literal_refusal(upstream):
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
        await self._session.close()
