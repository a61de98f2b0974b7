"""Whether what answers at `redis_url` can be slb's Redis: its version, and which scheme is spoken there."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from slb.control import redis_url

_OLDEST = (6, 2)
"""Of Redis: ZMSCORE, and ZRANGE with BYSCORE. A Valkey says 7.2.4 for the Redis it is like."""
_PORT = 6379


class Unfit(RedisError):
    """What answers is a Redis that slb cannot use."""


def check_version(server: Mapping[str, Any]) -> None:
    """`server`: the section of that name of INFO. One that tells no version passes. Raises Unfit."""
    version = str(server.get("redis_version", ""))
    numbers = version.split(".")[:2]
    if len(numbers) == 2 and all(each.isdecimal() for each in numbers) and tuple(map(int, numbers)) < _OLDEST:
        raise Unfit(f"it is Redis {version}, and slb needs Redis 6.2 or later, or a Valkey")


async def scheme_instead(url: str, deadline: float) -> str | None:
    """`rediss` where the port of a redis:// URL speaks TLS, `redis` where that of a rediss:// URL does not; None
    where neither is found out within `deadline` seconds, or the URL names no port of one server."""
    scheme, place = redis_url.scheme_of(url), urlsplit(url)
    found, other = {"redis": (_speaks_tls, "rediss"), "rediss": (_answers_plain, "redis")}.get(scheme, (None, ""))
    if found is None or place.hostname is None:
        return None
    with suppress(OSError, TimeoutError):  # then that is not what keeps it from answering
        async with asyncio.timeout(deadline):
            return other if await found(place.hostname, place.port or _PORT) else None
    return None


async def _speaks_tls(host: str, port: int) -> bool:
    """Raises OSError where it does not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent there
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.close()
    return True


async def _answers_plain(host: str, port: int) -> bool:
    """Whether PING is answered as Redis would, with a login or without. Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"PING\r\n")
        return (await reader.read(1)) in (b"+", b"-")
    finally:
        writer.close()
