"""One delivery of a callback: a POST on a connection of its own, to where callbacks may go."""

import asyncio
import errno
import io
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

import aiohttp
from yarl import URL

from slb import __version__
from slb.jobs.callback_names import AsideResolver
from slb.jobs.webhook import Reply
from slb.resolver import RuledResolver, Rules, ruled_sockets

WITHIN = 30.0
"""Seconds of a delivery, the lookup of its name included."""
MOST_AT_ONCE = 64
"""Deliveries of one instance, and threads that look their names up: none waits for a name of another."""
_MOST_READ = 64 * 1024
"""Bytes of an answer's body that are read, and dropped. Most are shorter, and none is cut off."""
_HEADERS = {"User-Agent": f"slb/{__version__} (job callback)", "Content-Type": "application/json", "Accept": "*/*"}


class Posting:
    """Delivers callbacks. Where each connection may go is judged by `rules`; redirects are not followed. What it
    says of a failure has nothing of an answer's body, nor of a URL's query. Must be closed."""

    def __init__(self, rules: Rules, within: float = WITHIN) -> None:
        self._rules = rules
        self._within = within
        self._resolver: RuledResolver | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """How the delivery went."""
        try:
            target = URL(url, encoded=True)  # as its caller wrote it: a query may be signed
            async with self._made().post(
                target, data=io.BytesIO(body), headers=headers, allow_redirects=False
            ) as reply:
                await _read_and_drop(reply.content)
                return Reply(reply.status, retry_after=reply.headers.get("Retry-After", "").strip())
        except TimeoutError:
            return Reply(0, f"no answer within {self._within:g} s")
        except (ValueError, aiohttp.NonHttpUrlClientError):  # ValueError: of aiohttp, yarl or the codec for names
            return Reply(0, "callback_url cannot be used", is_hopeless=True)
        except aiohttp.ClientResponseError:  # its text has the URL, and some of what was answered
            return Reply(0, "its answer is not HTTP")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(0, _told(error, target))

    async def aclose(self) -> None:
        """Close what is open."""
        session, resolver, self._session, self._resolver = self._session, self._resolver, None, None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    def _made(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._resolver = RuledResolver(self._rules, AsideResolver(MOST_AT_ONCE))
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                socket_factory=ruled_sockets(self._rules),
                use_dns_cache=False,
                force_close=True,
                limit=0,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=_HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=self._within),
            )
        return self._session


def _told(error: Exception, target: URL) -> str:
    """Why there is no answer, to its caller: the address of a name is not the caller's to know."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    place = f"{target.host}:{target.port}"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"no TLS with {place}"
    if isinstance(cause, socket.gaierror):
        return f"{target.host}: {cause.strerror}"
    if isinstance(cause, OSError) and cause.errno == errno.EACCES and cause.strerror:  # by the rules
        return f"{target.host} {cause.strerror.partition(' ')[2]}"
    if isinstance(cause, OSError):
        return f"no connection to {place}" + (f": {os.strerror(cause.errno)}" if cause.errno else "")
    return f"{place}: {type(error).__name__}"


async def _read_and_drop(content: aiohttp.StreamReader) -> None:
    """The status has been answered: what the body comes to makes no difference."""
    left = _MOST_READ
    with suppress(aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError):
        while left > 0 and (piece := await content.read(left)):
            left -= len(piece)
