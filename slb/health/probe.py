"""One active check: a GET, or a POST of JSON, on a connection of its own."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import aiohttp
from yarl import URL

from slb import __version__
from slb.addresses import AddressRules
from slb.health.expected import MOST_READ, body_fault, text_found
from slb.model import HealthCheck, Upstream
from slb.resolver import RuledResolver

_HEADERS = {
    "User-Agent": f"slb/{__version__} (health check)",
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # a body is looked at as it is
}
_JSON = {"Content-Type": "application/json"}

_UNLIMITED = aiohttp.ClientTimeout()
"""aiohttp's own would be longer than it says: of 5 s or more it ends at a whole second."""
_PARTS = 5
"""In which the time of a check is measured."""

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
        """Why `upstream` did not pass; None where it answered 2xx or 3xx in time, with what the check expects.
        Redirects are not followed."""
        if refusal := self._rules.literal_refusal(upstream):
            return refusal
        asking = asyncio.create_task(self._ask(upstream, check))
        try:
            if not await _ends_within(check.timeout, asking):
                return f"no answer within {check.timeout:g} s"
            return asking.result()
        finally:
            await _end(asking)

    async def _ask(self, upstream: Upstream, check: HealthCheck) -> str | None:
        method, path, sent, headers = "GET", check.path, None, None
        if check.post is not None:
            path, _, text = check.post.partition(" ")
            method, sent, headers = "POST", text.encode(), _JSON
        url = URL(f"{upstream.scheme}://{upstream.authority}{path}", encoded=True)
        try:
            context = await self._tls() if self._tls is not None and upstream.scheme == "https" else True
            async with self._session.request(
                method, url, data=sent, headers=headers, timeout=_UNLIMITED, allow_redirects=False, ssl=context
            ) as reply:
                if not 200 <= reply.status < 400:
                    return f"status {reply.status}"
                return body_fault(check, await _body(reply, check)) if check.body or check.json else None
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__

    async def aclose(self) -> None:
        await self._session.close()


async def _body(reply: aiohttp.ClientResponse, check: HealthCheck) -> bytes:
    """As much of it as decides: it may have no end."""
    body = bytearray()
    decides = text_found(check.body) if check.body is not None and check.json is None else None
    async for chunk in reply.content.iter_any():
        seen = len(body)
        body += chunk
        if len(body) > MOST_READ or (decides is not None and decides(body, seen)):
            break
    return bytes(body)


async def _ends_within(seconds: float, task: "asyncio.Task[str | None]") -> bool:
    """Whether it ends in so much time of this process. Where the process stood still meanwhile, however long, that
    is one part of `seconds` at most: it could not have read an answer."""
    for _ in range(_PARTS):
        done, _ = await asyncio.wait([task], timeout=seconds / _PARTS)
        if done:
            return True
    return False


async def _end(task: "asyncio.Task[str | None]") -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
